// Which names can stand in for an ID: those that are DNS labels.

/** A label of RFC 1123: 1 to 63 small letters, digits and hyphens, with no hyphen at either end. */
const DNS_LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Generated IDs are never labels, because they contain an underscore: `ep_01912f4e-…`. */
export function isDnsLabel(text: string): boolean {
  return DNS_LABEL.test(text);
}
