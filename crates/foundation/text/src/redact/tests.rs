use serde_json::json;

use super::*;

#[track_caller]
fn check(input: &str, expected: &str) {
    assert_eq!(mask_json(input), expected);
}

#[test]
fn secrets_are_masked_by_the_name_of_their_key() {
    check(r#"{"query":"x"}"#, r#"{"query":"x"}"#);
    check(r#"{"password":"x"}"#, r#"{"password":"***"}"#);
    check(r#"{"a":[{"API_Key":{"deep":1}}]}"#, r#"{"a":[{"API_Key":"***"}]}"#);
    check(r#"{"api-key":12}"#, r#"{"api-key":"***"}"#);
    check(r#"{"\u0074oken":"x"}"#, r#"{"token":"***"}"#);
    check(r#"{"text":"my password is x"}"#, r#"{"text":"my password is x"}"#);
    check(r#"{"has_token":true}"#, r#"{"has_token":true}"#);
    check("\"just text\"", "\"just text\"");
    check(r#"{"api.key":"x","to ken":"y"}"#, r#"{"api.key":"***","to ken":"***"}"#);
}

#[test]
fn credentials_in_headers_and_signed_urls_are_masked() {
    let bearer = |rest: &str| json!({ "log": format!("> Authorization: Bearer {rest}\r\n") });
    for scheme in ["aaaaaaaaaaaaaaaaaaaa", "eyJhbGciOi.JIUzI1NiJ9-_~+/=="] {
        check(&bearer(scheme).to_string(), &bearer(MASK).to_string());
    }
    check(r#"{"a":"a bearer of bad news"}"#, r#"{"a":"a bearer of bad news"}"#);
    let signed = |value: &str| json!(format!("https://s3.example/a?X-Amz-Signature={value}&b=1"));
    check(&signed("0123abcd").to_string(), &signed(MASK).to_string());
    check(r#"{"a":"?designature=1"}"#, r#"{"a":"?designature=1"}"#);
}

#[test]
fn short_names_are_masked_as_whole_words() {
    for key in [
        "pwd",
        "PWD",
        "db_pwd",
        "userPwd",
        "pin",
        "Pin",
        "PIN",
        "userPIN",
        "PINCode",
        "card-pin",
        "pin2",
        "otp",
        "otpCode",
        "jwt",
        "JWTValue",
        "bearer",
        "bearer_value",
        "pw",
        "db_pw",
        "totp",
        "mfaCode",
        "cvv",
        "cvc",
        "dsn",
        "connection_string",
        "connectionString",
        "ConnectionStrings",
        "accessKeyId",
        "AWS_ACCESS_KEY_ID",
        "passphrase",
        "pass",
        "db_pass",
        "userPass",
    ] {
        check(&json!({ key: "x" }).to_string(), &json!({ key: MASK }).to_string());
        check(&json!({ key: 1234 }).to_string(), &json!({ key: MASK }).to_string());
    }
    for key in [
        "shipping",
        "opinion",
        "pinned",
        "spin",
        "PINs",
        "mapping",
        "laptop",
        "forbearers",
        "cpwdx",
        "adsnx",
        "Pinterest",
        "passenger",
        "bypass",
        "compass",
    ] {
        check(&json!({ key: "x" }).to_string(), &json!({ key: "x" }).to_string());
    }
}

#[test]
fn our_tokens_are_masked_wherever_they_are() {
    let token = format!("sb_{}", "aB3-_".repeat(9).split_at(43).0);
    for (text, expected) in [
        (token.clone(), "***".to_owned()),
        (
            format!("curl -H 'Authorization: Bearer {token}' x"),
            "curl -H 'Authorization: Bearer ***' x".to_owned(),
        ),
        (format!("a{token},{token}."), "a***,***.".to_owned()),
        ("sb_short and sb_".to_owned(), "sb_short and sb_".to_owned()),
    ] {
        check(&json!({ "text": [text] }).to_string(), &json!({ "text": [expected] }).to_string());
        assert_eq!(mask_text(&text), expected);
    }
    check(&json!({ &token: 1 }).to_string(), r#"{"***":1}"#);
}

#[test]
fn credentials_in_urls_are_masked_and_the_rest_of_them_is_not() {
    for (text, expected) in [
        ("see https://example.com/a?q=b&page=2#c", "see https://example.com/a?q=b&page=2#c"),
        ("https://unpkg.com/@scope/package a@b.c", "https://unpkg.com/@scope/package a@b.c"),
        ("postgres://me:canary@db/x and http://canary@b/", "postgres://***@db/x and http://***@b/"),
        ("https://me:can@ary@[::1]:80/?q=a@b", "https://***@[::1]:80/?q=a@b"),
        ("https://me:can/ary@example.com", "https://***@example.com"),
        ("https://a/b?token=canary&q=1", "https://a/b?token=***&q=1"),
        ("GET /b?q=1&access_token=canary HTTP/1.1", "GET /b?q=1&access_token=*** HTTP/1.1"),
        ("'https://a/?api_key=canary'&sig=canary", "'https://a/?api_key=***'&sig=***"),
        ("https://a/?key=canary&monkey=1", "https://a/?key=***&monkey=1"),
        ("Server=db;User=me;Password=canary;", "Server=db;User=me;Password=***;"),
        ("shipping=1&opinion=2&pin=canary", "shipping=1&opinion=2&pin=***"),
        ("A=1\nTOKEN=canary --pin=canary", "A=1\nTOKEN=*** --pin=***"),
        ("x == y, key = value, token==x key=1", "x == y, key = value, token==x key=1"),
    ] {
        check(&json!([text]).to_string(), &json!([expected]).to_string());
        assert_eq!(mask_text(expected), expected, "once is enough");
    }
}

#[test]
fn values_of_lines_that_name_secrets_are_masked_and_the_rest_is_not() {
    for (text, expected) in [
        ("Cookie: a=canary; b=canary\r\nAccept: x", "Cookie: ***\r\nAccept: x"),
        ("> Authorization: Basic Y2FuYXJ5\n> Host: x", "> Authorization: Basic ***\n> Host: x"),
        ("< set-cookie: id=canary\n", "< set-cookie: ***\n"),
        ("curl -H 'X-Api-Key: canary' https://a/", "curl -H 'X-Api-Key: ***' https://a/"),
        ("db:\n  user: ann\n  password: \"canary\"\n", "db:\n  user: ann\n  password: ***\n"),
        ("steps:\n  - token: canary", "steps:\n  - token: ***"),
        ("db_pass: canary", "db_pass: ***"),
        ("Cookie:canary\npassword:\tcanary", "Cookie:***\npassword:\t***"),
        ("[db]\npassword = canary\nport = 1", "[db]\npassword = ***\nport = 1"),
        ("PASSWORD=\"canary\"\n", "PASSWORD=***\n"),
        // As files and matches are listed.
        ("1\tdb:\n2\t  password: canary\n3\tport: 1", "1\tdb:\n2\t  password: ***\n3\tport: 1"),
        ("12:password: canary\na/b.yml:3:token: canary", "12:password: ***\na/b.yml:3:token: ***"),
        ("+ password: canary\n# token: canary", "+ password: ***\n# token: ***"),
        ("use token::Kind;\ntoken == 1\ntoken => 1", "use token::Kind;\ntoken == 1\ntoken => 1"),
        ("the password: is it long?", "the password: is it long?"),
        ("password:\n  minimum: 8", "password:\n  minimum: 8"),
        ("shipping: tomorrow\nbypass: yes", "shipping: tomorrow\nbypass: yes"),
    ] {
        check(&json!([text]).to_string(), &json!([expected]).to_string());
        assert_eq!(mask_text(text), expected);
        assert_eq!(mask_text(expected), expected, "once is enough");
    }
}

#[test]
fn private_keys_are_masked_also_if_they_are_cut_off() {
    let key = "MIIEvQIBADANBg\nkqhkiG9w0BAQ==";
    for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        let begin = format!("-----BEGIN {kind}PRIVATE KEY-----\n");
        let end = format!("\n-----END {kind}PRIVATE KEY-----\n");
        for (text, expected) in [
            (format!("a\n{begin}{key}{end}b"), format!("a\n{begin}***{end}b")),
            (format!("{begin}{key}"), format!("{begin}***")),
            (format!("{begin}{key}{end}{begin}{key}{end}"), format!("{begin}***{end}").repeat(2)),
        ] {
            check(&json!([text]).to_string(), &json!([expected]).to_string());
            assert_eq!(mask_text(&text), expected);
            assert_eq!(mask_text(&expected), expected, "once is enough");
        }
    }
    let public = "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----";
    check(&json!([public]).to_string(), &json!([public]).to_string());
}

#[test]
fn secrets_of_json_within_a_text_are_masked_and_the_rest_of_it_is_not() {
    for (text, expected) in [
        (r#"{"password":"canary"}"#, r#"{"password":"***"}"#),
        (r#"{ "user": "ann",  "api_key" : "canary" }"#, r#"{ "user": "ann",  "api_key" : "***" }"#),
        ("[\n  {\n    \"pin\": 1234\n  }\n]", "[\n  {\n    \"pin\": \"***\"\n  }\n]"),
        (r#"{"pin":-1.5e3,"a":1}"#, r#"{"pin":"***","a":1}"#),
        (r#"{"secret":{"a":["}",{"b":"\"]"}]},"c":1}"#, r#"{"secret":"***","c":1}"#),
        (r#"{"password":"a\"b\\","c":"d"}"#, r#"{"password":"***","c":"d"}"#),
        // Between other words, in several lines, and cut off.
        (r#"Result: {"jwt":"canary"} (1 row)"#, r#"Result: {"jwt":"***"} (1 row)"#),
        ("{\"pwd\":\"canary\"}\n{\"otp\":5}", "{\"pwd\":\"***\"}\n{\"otp\":\"***\"}"),
        (r#"{"a":1,"password":"cana"#, r#"{"a":1,"password":"***""#),
        (r#"{"cookie":["canary","#, r#"{"cookie":"***""#),
        // In strings of the document.
        (r#"{"a":"{\"pin\":\"canary\",\"b\":1}"}"#, r#"{"a":"{\"pin\":\"***\",\"b\":1}"}"#),
        (r#"["{\"pin\":[\"canary\"","b"]"#, r#"["{\"pin\":\"***\"","b"]"#),
        (
            r#""\"{\\\"pin\\\": \\\"can\\\\\\\"ary\\\", \\\"b\\\": 1}\"""#,
            r#""\"{\\\"pin\\\": \\\"***\\\", \\\"b\\\": 1}\"""#,
        ),
        // Neither is a secret.
        (r#"{"has_token":true,"token":null}"#, r#"{"has_token":true,"token":null}"#),
        (r#"{"shipping":"x"} "password": y: "z""#, r#"{"shipping":"x"} "password": y: "z""#),
    ] {
        check(&json!([text]).to_string(), &json!([expected]).to_string());
        assert_eq!(mask_text(text), expected);
        assert_eq!(mask_text(expected), expected, "once is enough");
    }
}

#[test]
fn names_are_split_into_words() {
    let check =
        |name, expected: &[&str]| assert_eq!(words(name).collect::<Vec<_>>(), expected, "{name}");
    check("accessKeyId", &["access", "Key", "Id"]);
    check("AWS_ACCESS-key.2x", &["AWS", "ACCESS", "key", "x"]);
    check("PINCode", &["PIN", "Code"]);
    check("über_pin", &["ber", "pin"]);
    check("", &[]);
}

proptest::proptest! {
    /// Checks that a text which the quick check accepts is not changed by full masking.
    #[test]
    fn a_quick_look_misses_nothing(
        key in "[a-zA-Z_. é]{0,6}(pass|to|T|api|cookie|pin|PIN|Otp|jwt|access|)[_-]?(word|ken|Key|oken|s|Code|)[ -~]{0,4}",
        text in "[a-z ]{0,3}(\n?(Cookie|pass|db-token|a): [a-z]{0,3}|-----BEGIN (RSA )?PRIVATE KEY-----[A-Z]{0,3}|sb_[a-zA-Z0-9_-]{30,44}|https?://[a-z:/@?#]{0,9}@?[a-z]{0,3}|[?&;#](key|sig|token|Pin|q)=[a-z&]{0,4}|)[ -~]{0,4}",
    ) {
        let json = json!({ &key: { "n": &text } });
        let mut slowly = json.clone();
        mask(&mut slowly);
        proptest::prop_assert_eq!(mask_json(&json.to_string()).into_owned(), slowly.to_string());
    }

    #[test]
    fn whatever_comes_in_stays_json(text in proptest::prelude::any::<String>()) {
        let json = json!({ "password": text, "n": { text.clone(): 1 } }).to_string();
        let value: Value = serde_json::from_str(&mask_json(&json)).unwrap();
        proptest::prop_assert_eq!(&value["password"], MASK);
        let _ = mask_json(&text);
    }

    /// Checks that it does not matter how deep the document of a secret is.
    #[test]
    fn no_secret_of_a_document_in_a_string_is_ever_shown(
        around in sa_hostile::text(&["\"", "\\", "{", "[", ":", ",", " ", "a"]), depth in 0..4, before in "[a-z\"\\\\]{0,4}",
    ) {
        let mut text = json!({ "n": 1, "password": format!("{before}canary{around}") }).to_string();
        for _ in 0..depth {
            text = json!({ "text": text }).to_string();
        }
        let shown = mask_text(&text);
        proptest::prop_assert!(!shown.contains("canary"), "{} is shown as {}", text, shown);
        let mut read: Value = serde_json::from_str(&shown).unwrap();
        for _ in 0..depth {
            read = serde_json::from_str(read["text"].as_str().unwrap()).unwrap();
        }
        proptest::prop_assert_eq!(read, json!({ "n": 1, "password": MASK }));
    }

    #[test]
    fn no_token_of_ours_is_ever_shown(before in ".{0,8}", body in "[A-Za-z0-9_-]{43}", after in "[^A-Za-z0-9_-].{0,8}") {
        let shown = mask_json(&json!([format!("{before}sb_{body}{after}")]).to_string()).into_owned();
        proptest::prop_assert!(!shown.contains(&body), "{}", shown);
    }

    #[test]
    fn no_password_of_a_url_is_ever_shown(
        text in sa_hostile::text(&["https://", "/", "@", "canary", ":", "?", "#", "example.com", "[::1]", "80"]),
    ) {
        // A URL within a text ends at these. A parser of URLs would skip or encode them.
        if text.contains(is_end) { return Ok(()) }
        let Some(url) = url::Url::parse(&text).ok().filter(url::Url::has_host) else { return Ok(()) };
        let secret = [url.username(), url.password().unwrap_or_default()].iter().any(|part| part.contains("canary"));
        let elsewhere = text.matches("canary").count() > 1;
        let shown = mask_text(&text);
        proptest::prop_assert!(!secret || elsewhere || !shown.contains("canary"), "{} is shown as {}", text, shown);
    }
}
