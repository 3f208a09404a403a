// Certificates for tests: a fixed one, an authority made with openssl, and servers' certificates that it signs.
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

// For localhost and 127.0.0.1, valid until 2126, trusted by nobody.
export const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUBDnpA+X3nyjwZqY06KH6JI41pHIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTAwMzQ0MloYDzIxMjYxMDI4
MDAzNDQyWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQkrYVHmXD9aYxhQznW0mDnWXWVLtUNjnSTog7a0TY8j+X/SC1HtOrI
/RFIFzj0TFmBrIkHdHR4u17VjCh4Yifeo28wbTAdBgNVHQ4EFgQU4+S4f4KU5BC1
6YzTB1QiTwSnUjQwHwYDVR0jBBgwFoAU4+S4f4KU5BC16YzTB1QiTwSnUjQwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgWgnOGkHkF/EIvPhQOWD9QNWOwlYidcAaoob1x9n+KfgCIGFt
SmgwEa5vEnc9dOXRXE1QE8+DuWPi77Kh2yDaIF3s
-----END CERTIFICATE-----
`;

export const CERTIFICATE_KEY = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgwlmpf5IS0Nrj90rJ
SaYqhjmSg/mldwk1z+RZ8WeDF8ehRANCAAQkrYVHmXD9aYxhQznW0mDnWXWVLtUN
jnSTog7a0TY8j+X/SC1HtOrI/RFIFzj0TFmBrIkHdHR4u17VjCh4Yife
-----END PRIVATE KEY-----
`;
