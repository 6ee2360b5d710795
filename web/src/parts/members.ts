/** Returns the members of a JSON object whose values are the texts that were typed, if any. */
export function typedMembers(typed: Record<string, string>): string[] {
  return Object.entries(typed)
    .filter(([, text]) => text.trim() !== "")
    .map(([name, text]) => `"${name}":${JSON.stringify(text.trim())}`);
}
