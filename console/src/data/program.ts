import { status } from "./live";
import { useResource } from "./resource";

/** What somebody types before a command for it to be about this gateway. */
export function useProgram(): string {
  return useResource(status).data?.command ?? "switchboard";
}
