// Reading the login to a Kubernetes API from a kubeconfig file.
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadLogin } from '../../../../src/engine/kubernetes/login.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-login-'));
});

afterEach(() => rmSync(folder, { recursive: true }));

function write(name: string, text: string): void {
  writeFileSync(join(folder, name), text);
}

/** `user`, `cluster` and `context`: YAML in braces. */
function load(user: string, cluster = '{ server: "https://k8s:6443/" }', context = '') {
  write(
    'config',
    `# as kubectl writes it
apiVersion: v1
current-context: here
clusters: [{ name: c, cluster: ${cluster} }, { name: broken, cluster: 7 }]
users: [{ name: u, user: ${user} }, { name: broken }]
contexts:
- name: there
- name: here
  context: { cluster: c, user: u ${context} }
`,
  );
  return loadLogin({ kubeconfig: join(folder, 'config'), environment: process.env });
}

const base64 = (text: string) => Buffer.from(text).toString('base64');

describe('the login of a kubeconfig file', () => {
  it('is that of the current context', async () => {
    const login = await load('{ token: abc }', undefined, ', namespace: mine');
    expect(login).toMatchObject({ server: 'https://k8s:6443', namespace: 'mine' });
    expect(await login.sign()).toEqual({ headers: { authorization: 'Bearer abc' }, tls: {} });
  });

  it('reads a token and certificates again, relative to its folder', async () => {
    write('token', 'one\n');
    write('ca.pem', 'CA');
    write('cert.pem', 'CERT');
    write('key.pem', 'KEY');
    const login = await load(
      '{ tokenFile: token, client-certificate: cert.pem, client-key: ./key.pem }',
      '{ server: "https://k8s", certificate-authority: ca.pem, tls-server-name: api }',
    );
    const tls = { ca: 'CA', cert: 'CERT', key: 'KEY', servername: 'api' };
    expect(await login.sign()).toEqual({ headers: { authorization: 'Bearer one' }, tls });
    write('token', 'two');
    write('cert.pem', 'NEW');
    expect(await login.sign()).toEqual({
      headers: { authorization: 'Bearer two' },
      tls: { ...tls, cert: 'NEW' },
    });
  });

  it('reads inline certificates, a password, and insecure-skip-tls-verify', async () => {
    const login = await load(
      `{ username: ada, password: ü, client-certificate-data: ${base64('C')}, client-key-data: ${base64('K')} }`,
      `{ server: "https://k8s", certificate-authority-data: ${base64('CA')}, insecure-skip-tls-verify: true }`,
    );
    expect(await login.sign()).toEqual({
      headers: { authorization: `Basic ${base64('ada:ü')}` },
      tls: { ca: 'CA', cert: 'C', key: 'K', rejectUnauthorized: false },
    });
  });

  it.each([
    ['current-context: 1', /config: current-context: Invalid input: expected string/],
    ['current-context: x', /config: it has no context x/],
    ['a: [', /config: .*Flow sequence/s],
    ['', /config: it has no current context/],
  ])('is refused for the file %j, which the error names', async (text, problem) => {
    write('config', text);
    await expect(
      loadLogin({ kubeconfig: join(folder, 'config'), environment: process.env }),
    ).rejects.toThrow(problem);
  });

  it('throws without a file, and for an auth-provider', async () => {
    const absent = loadLogin({ kubeconfig: join(folder, 'absent'), environment: process.env });
    await expect(absent).rejects.toThrow(/ENOENT.*absent/);
    await expect(load('{ auth-provider: { name: oidc } }')).rejects.toThrow(
      /auth-provider oidc; use exec or a token/,
    );
  });
});

describe('the program of a kubeconfig file', () => {
  /** Counts its runs, and keeps what it was told. */
  function writeProgram(answer: string): void {
    write(
      'login',
      `#!/bin/sh\necho "$@ $KUBERNETES_EXEC_INFO $REGION" >>"\${0%/*}/calls"\n${answer}`,
    );
    chmodSync(join(folder, 'login'), 0o755);
  }

  const listCalls = () => readFileSync(join(folder, 'calls'), 'utf8').trim().split('\n');
  const user = `{ exec: { apiVersion: client.authentication.k8s.io/v1, command: ./login,
    args: [get, token], env: [{ name: REGION, value: eu }], provideClusterInfo: true } }`;
  const print = (status: object) => `echo '${JSON.stringify({ status })}'`;

  it('runs once for several calls, until its token expires or is refused', async () => {
    writeProgram(print({ token: 'fresh', clientCertificateData: 'C', clientKeyData: 'K' }));
    const login = await load(user);
    const signed = { headers: { authorization: 'Bearer fresh' }, tls: { cert: 'C', key: 'K' } };
    expect(await Promise.all([login.sign(), login.sign()])).toEqual([signed, signed]);
    const [call = ''] = listCalls();
    expect(call).toMatch(/^get token \{.*\} eu$/);
    expect(JSON.parse(call.slice('get token '.length, -' eu'.length))).toEqual({
      apiVersion: 'client.authentication.k8s.io/v1',
      kind: 'ExecCredential',
      spec: { interactive: false, cluster: { server: 'https://k8s:6443/' } },
    });
    login.forget();
    await login.sign();
    expect(listCalls()).toHaveLength(2);
    writeProgram(print({ token: 'old', expirationTimestamp: '2026-01-01T00:00:00Z' }));
    login.forget();
    await login.sign();
    await login.sign();
    expect(listCalls()).toHaveLength(4);
  });

  it('inherits the given variables', async () => {
    writeProgram(`echo "{\\"status\\":{\\"token\\":\\"$MINE$REGION\\"}}"`);
    await load(user);
    const environment = { PATH: process.env['PATH'], MINE: 'm' };
    const login = await loadLogin({ kubeconfig: join(folder, 'config'), environment });
    expect((await login.sign()).headers).toEqual({ authorization: 'Bearer meu' });
  });

  it.each([
    ['echo "please sign in" >&2; exit 3', 'the program ./login failed: please sign in'],
    ['exit 3', 'the program ./login failed: 3'],
    ['echo secret', 'the program ./login prints no ExecCredential'],
    [
      print({ token: 'secret', expirationTimestamp: 'soon' }),
      'the program ./login prints an expirationTimestamp that is no date: "soon"',
    ],
  ])('is named in the error if it does %j, and runs again', async (answer, message) => {
    writeProgram(answer);
    const login = await load(user);
    await expect(login.sign()).rejects.toThrow(new Error(message));
    writeProgram(print({ token: 'now' }));
    expect((await login.sign()).headers).toEqual({ authorization: 'Bearer now' });
  });
});

it('logs in with the account of the Pod to the cluster that the variables name', async () => {
  const open = (environment: Readonly<Record<string, string>>) =>
    loadLogin({ kubeconfig: undefined, environment });
  const port = { KUBERNETES_SERVICE_PORT: '443' };
  const login = await open({ ...port, KUBERNETES_SERVICE_HOST: 'fd00::1' });
  expect(login.server).toBe('https://[fd00::1]:443');
  await expect(open(port)).rejects.toThrow('KUBERNETES_SERVICE_HOST is not set');
});
