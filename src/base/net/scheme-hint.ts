// Explains a failed HTTP request: the port may need TLS, or may not speak it. Also runs in browsers.

/** Errors if the server closes the connection without an answer, as one with TLS does. */
const CLOSED: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);
/** Errors of TLS about an answer in plain text. */
const NO_TLS = /wrong version number|packet length too long/i;

/** Returns a clause to append to the error's message, or an empty text. */
export function hintAtScheme(cause: unknown, url: string): string {
  if (!(cause instanceof Error)) return '';
  const isTls = url.startsWith('https:');
  const code = 'code' in cause ? cause.code : undefined;
  if (!isTls && CLOSED.has(code)) return '; if the port needs TLS, use an https:// URL';
  if (isTls && NO_TLS.test(cause.message))
    return '; the port does not speak TLS, use an http:// URL';
  return '';
}
