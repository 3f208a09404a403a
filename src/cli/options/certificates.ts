// The certificates and keys that options name. The files are read again when they change, so that renewed ones need no
// restart.

import { statSync } from 'node:fs';
import type { Log } from '../../base/log.ts';
import { readNamedFile, UsageError } from '../options.ts';

// Loading node:crypto costs memory that a worker without such files does not need.
const loadCrypto = () => process.getBuiltinModule('node:crypto');

const CERTIFICATE = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]*-----END [^-]*-----/g;
const PRIVATE_KEY = /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/;

/** One or more certificates. Otherwise TLS would ignore the text, and trust nobody. @throws UsageError naming the option */
export function readCertificates(option: string, path: string): string {
  const text = readPem(option, path);
  const certificates = text.match(CERTIFICATE);
  if (!certificates) {
    const found = PRIVATE_KEY.test(text) ? 'a private key' : 'no certificate';
    throw new UsageError(`${option}: ${path} has ${found}; name a file with a certificate`);
  }
  const { X509Certificate } = loadCrypto();
  for (const certificate of certificates) {
    parse({ option, path, what: 'a certificate' }, () => new X509Certificate(certificate));
  }
  return text;
}

interface PemFile {
  option: string;
  path: string;
}

/** A certificate and its key. TLS itself does not notice a key of another algorithm. @throws UsageError naming the option */
export function readKeyPair(certificate: PemFile, key: PemFile): { cert: string; key: string } {
  const pair = {
    cert: readCertificates(certificate.option, certificate.path),
    key: readPrivateKey(key.option, key.path),
  };
  const { createPrivateKey, X509Certificate } = loadCrypto();
  const [first = ''] = pair.cert.match(CERTIFICATE) ?? [];
  if (new X509Certificate(first).checkPrivateKey(createPrivateKey(pair.key))) return pair;
  const problem = `${key.path} is not the key of the certificate in ${certificate.path}`;
  throw new UsageError(`${key.option}: ${problem}`);
}

function readPrivateKey(option: string, path: string): string {
  const text = readPem(option, path);
  if (!PRIVATE_KEY.test(text)) {
    const found = text.match(CERTIFICATE) ? 'a certificate' : 'no private key';
    throw new UsageError(`${option}: ${path} has ${found}; name a file with a private key`);
  }
  parse({ option, path, what: 'a private key' }, () => loadCrypto().createPrivateKey(text));
  return text;
}

function readPem(option: string, path: string): string {
  const text = readNamedFile(option, path);
  if (text.includes('-----BEGIN ')) return text;
  throw new UsageError(`${option}: ${path} is not a PEM file`);
}

function parse(
  { option, path, what }: { option: string; path: string; what: string },
  read: () => unknown,
): void {
  try {
    read();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UsageError(`${option}: ${path} has ${what} that cannot be used: ${reason}`);
  }
}

/** Interval between two checks of the files, ms. */
const CHECK_MS = 2_000;

/** Reads the files and uses them. @throws Error if they cannot be used; nothing changes then */
type Renew = () => void;

export class CertificateFiles {
  readonly #paths: readonly (string | undefined)[];
  readonly #log: Log;
  /** State of the files at the last check, and when they were last read. */
  #seen: string;
  #read: string;
  #timer: NodeJS.Timeout | undefined;

  /** The caller already uses the current content of the files. */
  constructor(paths: readonly (string | undefined)[], log: Log) {
    this.#paths = paths;
    this.#log = log;
    this.#seen = this.#stamp();
    this.#read = this.#seen;
  }

  watch(renew: Renew): void {
    this.#timer = setInterval(() => this.look(renew), CHECK_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Reads changed files once two checks see the same state: the files are not all replaced at once. */
  look(renew: Renew): void {
    const stamp = this.#stamp();
    const isSettled = stamp === this.#seen;
    this.#seen = stamp;
    if (!isSettled || stamp === this.#read) return;
    this.#read = stamp;
    try {
      renew();
      this.#log.info('certificate replaced');
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#log.error({ reason }, 'replacing the certificate failed');
    }
  }

  #stamp(): string {
    return this.#paths.map(stampFile).join();
  }
}

function stampFile(path = ''): string {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats ? `${stats.ino} ${stats.size} ${stats.mtimeMs}` : '';
}
