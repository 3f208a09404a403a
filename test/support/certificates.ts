// Makes certificates with openssl: an authority, and servers' certificates that it signs.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

export interface Certificate {
  cert: string;
  key: string;
}

export class Authority {
  readonly #folder = mkdtempSync(join(tmpdir(), 'millrace-authority-'));

  constructor() {
    this.#make('ca', ['-subj', '/CN=authority of the tests']);
  }

  /** File of the certificate that others trust. */
  get path(): string {
    return join(this.#folder, 'ca.crt');
  }

  sign(hostName: string, ...others: string[]): Certificate {
    const all = [hostName, ...others].map((name) => `DNS:${name}`);
    const names = ['-addext', `subjectAltName=${all.join(',')}`];
    const signer = ['-CA', this.path, '-CAkey', join(this.#folder, 'ca.key')];
    this.#make('server', [
      ...['-subj', `/CN=${hostName}`, '-addext', 'basicConstraints=critical,CA:FALSE'],
      ...[...names, ...signer],
    ]);
    const read = (file: string) => readFileSync(join(this.#folder, file), 'utf8');
    return { cert: read('server.crt'), key: read('server.key') };
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true });
  }

  #make(name: string, args: readonly string[]): void {
    const out = ['-keyout', `${name}.key`, '-out', `${name}.crt`];
    execFileSync('openssl', ['req', '-x509', ...NEW_KEY, '-days', '2', ...out, ...args], {
      cwd: this.#folder,
      stdio: 'pipe',
    });
  }
}
