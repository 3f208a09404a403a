// The flags of HTTPS, and the files that they name: a renewed certificate is taken without a restart.
import { statSync } from 'node:fs';
import type { Log } from '../../base/log.ts';
import type { PlatformTls } from '../../platform/platform-options.ts';
import { text, UsageError } from '../options.ts';
import { readKeyPair } from '../pem-file.ts';

export const tlsOptions = {
  tlsCert: text({
    placeholder: 'FILE',
    env: 'MILLRACE_TLS_CERT',
    help: 'PEM file of the TLS certificate; serve HTTPS; needs --tls-key; both files are read again when they change',
  }),
  tlsKey: text({
    placeholder: 'FILE',
    env: 'MILLRACE_TLS_KEY',
    help: 'PEM file of the private key of --tls-cert',
  }),
};

interface TlsValues {
  tlsCert: string | undefined;
  tlsKey: string | undefined;
}

/** @throws UsageError */
export function readTls(values: TlsValues): PlatformTls | undefined {
  const { tlsCert, tlsKey } = values;
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsCert === undefined) throw new UsageError('--tls-key needs --tls-cert');
  if (tlsKey === undefined) throw new UsageError('--tls-cert needs --tls-key');
  const pair = readKeyPair(
    { option: '--tls-cert', path: tlsCert },
    { option: '--tls-key', path: tlsKey },
  );
  return { ...pair, keyFile: tlsKey };
}

/** Interval of looks at the files, ms. */
const LOOK_MS = 2_000;

type Use = (pair: { cert: string; key: string }) => void;

/** The files of the certificate. A pair that cannot be used changes nothing. */
export class CertificateFiles {
  readonly #values: TlsValues;
  readonly #log: Log;
  /** As of the last look, and of the last pair that was read. */
  #seen: string;
  #read: string;
  #timer: NodeJS.Timeout | undefined;

  /** What the files have now is in use. */
  constructor(values: TlsValues, log: Log) {
    this.#values = values;
    this.#log = log;
    this.#seen = this.#stamp();
    this.#read = this.#seen;
  }

  watch(use: Use): void {
    this.#timer = setInterval(() => this.look(use), LOOK_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Reads the files if they have changed, but not since the look before: the two are not replaced at once. */
  look(use: Use): void {
    const stamp = this.#stamp();
    const isSettled = stamp === this.#seen;
    this.#seen = stamp;
    if (!isSettled || stamp === this.#read) return;
    this.#read = stamp;
    try {
      const tls = readTls(this.#values);
      if (tls) use({ cert: tls.cert, key: tls.key });
      this.#log.info('certificate replaced');
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#log.error({ reason }, 'replacing the certificate failed');
    }
  }

  #stamp(): string {
    return [this.#values.tlsCert, this.#values.tlsKey].map(stampFile).join();
  }
}

function stampFile(path = ''): string {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats ? `${stats.ino} ${stats.size} ${stats.mtimeMs}` : '';
}
