// Explains a failed HTTP request: the port may need TLS, may not speak it, or its certificate is not trusted. Also runs
// in browsers.

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

/** Texts of OpenSSL, with the advice that Node adds to some. */
const UNTRUSTED =
  /(self-signed certificate(?: in certificate chain)?|unable to (?:verify the first certificate|get (?:local )?issuer certificate))(?:; if the root CA is installed locally, try running Node\.js with --use-system-ca)?/;

/** Replaces Node's advice about a certificate that no trusted authority has signed. */
export function adviseTrust(reason: string, advice: string): string {
  return reason.replace(UNTRUSTED, `$1; ${advice}`);
}

/** For workers. */
export const TRUST_ADVICE = 'give the worker --ca FILE';
