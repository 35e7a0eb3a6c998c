import { status } from "./live";
import { useResource } from "./resource";

/** The beginning of a command line for this gateway. */
export function useProgram(): string {
  return useResource(status).data?.command ?? "switchboard";
}
