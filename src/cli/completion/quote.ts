// Quotes words for shells. Pure.

/** For bash and zsh: one word, whatever it contains. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** For fish, where a backslash escapes within quotes. */
export function quoteFish(text: string): string {
  return `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;
}
