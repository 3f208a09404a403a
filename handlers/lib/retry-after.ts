// Which answers of a server make trying again worthwhile.

/** Answers after which the same request may succeed later. */
export function isTransient(status: number): boolean {
  return status >= 500 || status === 408 || status === 425 || status === 429;
}
