//! Skills are listed with the hosts that can run them. A broken skill reports its error and hides
//! no other, and no link can leave the skills directory.

use std::fs;
use std::path::Path;

use sa_testkit::{Gateway, Hello, Setup};
use serde_json::{Value, json};

fn write(dir: &Path, folder: &str, text: &str) {
    fs::create_dir_all(dir.join(folder)).unwrap();
    fs::write(dir.join(folder).join("SKILL.md"), text).unwrap();
}

fn laptop() -> Hello {
    Hello::new("laptop")
        .describe(json!({ "name": "Bash", "capabilities": ["shell.exec"] }))
        .with("host", json!({ "role": "execution", "os": "linux", "env": ["HOME"] }))
}

async fn skills(gateway: &Gateway) -> Vec<Value> {
    let reply = gateway.operator().get("/v1/skills").await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.body["skills"].as_array().unwrap().clone()
}

fn named<'a>(skills: &'a [Value], name: &str) -> &'a Value {
    skills
        .iter()
        .find(|skill| skill["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {skills:?}"))
}

#[tokio::test]
async fn skills_are_matched_against_hosts() {
    let gateway = Setup::new().start().await;
    assert!(skills(&gateway).await.is_empty(), "nobody has to have any");
    let dir = gateway.data_dir().join("skills");
    write(&dir, "notes", "---\nname: notes\ndescription: Takes notes.\n---\n# Notes\n");
    let shell = "---\nname: shell\ndescription: >\n  Runs\n  things.\nlicense: MIT\nrequires:\n  capabilities: [shell.exec]\n  os: [linux]\n---\n";
    write(&dir, "shell", shell);
    write(
        &dir,
        "gpu",
        "---\nname: gpu\ndescription: Trains.\nmetadata:\n  gsv:\n    requires:\n      env: [CUDA_HOME, HOME]\n---\n",
    );
    let before = skills(&gateway).await;
    assert_eq!(named(&before, "notes")["eligible"], true, "what requires nothing needs no host");
    assert_eq!(named(&before, "shell")["eligible"], false);

    let _laptop = laptop().connect(&gateway).await;
    let listed = skills(&gateway).await;
    assert_eq!(
        listed.iter().map(|skill| &skill["name"]).collect::<Vec<_>>(),
        ["gpu", "notes", "shell"]
    );
    let shell = named(&listed, "shell");
    assert_eq!((&shell["eligible"], &shell["hosts"]), (&json!(true), &json!(["laptop"])));
    assert_eq!(shell["description"].as_str().unwrap().trim(), "Runs things.");
    assert_eq!(shell["requires"], json!({ "capabilities": ["shell.exec"], "os": ["linux"] }));
    assert_eq!(shell["path"], dir.join("shell/SKILL.md").display().to_string());
    let gpu = named(&listed, "gpu");
    assert_eq!(
        (&gpu["eligible"], &gpu["missing"]),
        (&json!(false), &json!({ "laptop": { "env": ["CUDA_HOME"] } }))
    );

    // Users edit skills while the gateway runs.
    write(&dir, "gpu", "---\nname: gpu\ndescription: Trains.\n---\n");
    assert_eq!(named(&skills(&gateway).await, "gpu")["eligible"], true);
}

#[tokio::test]
async fn programs_that_skills_need_are_asked_for() {
    let gateway = Setup::new().start().await;
    let dir = gateway.data_dir().join("skills");
    write(
        &dir,
        "a",
        "---\nname: a\ndescription: A.\nrequires: {bins: [git], any_bins: [npm, bun]}\n---\n",
    );
    write(&dir, "b", "---\nname: b\ndescription: B.\nrequires: {bins: [docker]}\n---\n");
    let mut laptop = laptop().with("features", json!(["bin_probe"])).connect(&gateway).await;
    let operator = gateway.operator();
    let listed = tokio::spawn(async move { operator.get("/v1/skills").await.body });
    let question = laptop.recv().await;
    assert_eq!(question["bins"], json!(["bun", "docker", "git", "npm"]), "all in one question");
    let answer = json!({ "git": true, "bun": true, "npm": false, "docker": false });
    laptop
        .send(
            json!({ "type": "bin_probe_result", "probe_id": question["probe_id"], "bins": answer }),
        )
        .await;
    let listed = listed.await.unwrap();
    let listed = listed["skills"].as_array().unwrap();
    assert_eq!(named(listed, "a")["hosts"], json!(["laptop"]));
    assert_eq!(named(listed, "b")["missing"], json!({ "laptop": { "bins": ["docker"] } }));
}

#[tokio::test]
async fn a_broken_skill_says_what_is_wrong_and_hides_no_other() {
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "secret", "---\nname: stolen\ndescription: hunter2\n---\n");
    let gateway = Setup::new().start().await;
    let dir = gateway.data_dir().join("skills");
    write(&dir, "fine", "---\nname: fine\ndescription: Works.\n---\n");
    write(&dir, "typo", "---\nname: typo\ndescription: x\nrequires:\n  binaries: [git]\n---\n");
    write(&dir, "no-front-matter", "# Hello\n");
    write(&dir, "huge", &format!("---\nname: huge\ndescription: {}\n", "x".repeat(200_000)));
    write(&dir, "twin", "---\nname: fine\ndescription: Again.\n---\n");
    fs::create_dir(dir.join("not-text")).unwrap();
    fs::write(dir.join("not-text/SKILL.md"), b"---\nname: \xff\xfe\n---\n").unwrap();
    fs::create_dir(dir.join("folder")).unwrap();
    fs::create_dir(dir.join("folder/SKILL.md")).unwrap();
    fs::create_dir(dir.join("pipe")).unwrap();
    let pipe =
        std::process::Command::new("mkfifo").arg(dir.join("pipe/SKILL.md")).status().unwrap();
    assert!(pipe.success());
    std::os::unix::fs::symlink(outside.path().join("secret"), dir.join("link")).unwrap();
    fs::create_dir(dir.join("file-link")).unwrap();
    std::os::unix::fs::symlink(
        outside.path().join("secret/SKILL.md"),
        dir.join("file-link/SKILL.md"),
    )
    .unwrap();
    fs::create_dir(dir.join("no-skill")).unwrap();

    let listed = skills(&gateway).await;
    assert_eq!(listed.len(), 10, "{listed:?}");
    assert!(listed.iter().any(|skill| skill["name"] == "fine" && skill["eligible"] == true));
    for (name, words) in [
        ("typo", ["typo/SKILL.md", "line 5", "binaries"]),
        ("no-front-matter", ["no-front-matter/SKILL.md", "line 1", "dashes"]),
        ("huge", ["huge/SKILL.md", "larger", "65536"]),
        ("not-text", ["not-text/SKILL.md", "UTF-8", ""]),
        ("folder", ["folder/SKILL.md", "", "not a file"]),
        ("pipe", ["pipe/SKILL.md", "", "not a file"]),
        ("link", ["link/SKILL.md", "link", "outside of"]),
        ("file-link", ["file-link/SKILL.md", "link", "outside of"]),
    ] {
        let skill = named(&listed, name);
        let problem = skill["problem"].as_str().unwrap_or_default();
        assert!(words.iter().all(|word| problem.contains(word)), "{name}: {problem}");
        assert_eq!(skill["eligible"], false);
    }
    assert!(!json!(listed).to_string().contains("hunter2"));
    // Agents can read skills, but do not learn the paths of the gateway's files.
    let reply = gateway.new_agent("a").await.get("/v1/skills").await;
    assert_eq!(reply.status, 200);
    assert!(!reply.text.contains(gateway.data_dir().to_str().unwrap()), "{}", reply.text);
    let (_, token) = gateway.token(json!({ "name": "n", "role": "node" })).await;
    gateway.agent(&token).get("/v1/skills").await.assert_problem(403, "not_allowed");
}
