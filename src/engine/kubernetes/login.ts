// Reads the way to the API server and its credentials: from a kubeconfig file, or from the account of the Pod that the
// platform runs in. Files are read again for each call, because certificates and tokens are renewed.
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { z } from 'zod';
import { describeIssues } from '../../wire/problem.ts';

const execute = promisify(execFile);
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Time limit of a program that prints credentials; it may ask a server. */
const PROGRAM_LIMIT_MS = 60_000;
/** Credentials that are about to expire are not used. */
const EXPIRY_MARGIN_MS = 10_000;

export interface ApiAccess {
  /** Path of a kubeconfig file. Undefined: the account of the Pod in which the platform runs. */
  kubeconfig: string | undefined;
  /** Default: the namespace of the kubeconfig's context, or that of the platform's own Pod. */
  namespace?: string | undefined;
  /** Names the API server to a Pod, and is inherited by a program that prints credentials. */
  environment: Environment;
}

type Environment = Readonly<Record<string, string | undefined>>;

interface TlsTerms {
  ca?: string;
  cert?: string;
  key?: string;
  rejectUnauthorized?: boolean;
  servername?: string;
}

/** Settings of the connection and headers of each call. */
export interface Login {
  server: string;
  namespace: string | undefined;
  sign(): Promise<{ headers: Record<string, string>; tls: TlsTerms }>;
  /** Call it when the API server has refused the credentials. */
  forget(): void;
}

const text = z.string().nullish();
const entries = z.array(z.looseObject({ name: z.string() })).nullish();
const kubeconfig = z.object({
  'current-context': text,
  clusters: entries,
  contexts: entries,
  users: entries,
});
const clusterEntry = z.object({
  server: z.string(),
  'certificate-authority': text,
  'certificate-authority-data': text,
  'insecure-skip-tls-verify': z.boolean().nullish(),
  'tls-server-name': text,
});
const contextEntry = z.object({ cluster: z.string(), user: text, namespace: text });
const program = z.object({
  apiVersion: z.string(),
  command: z.string(),
  args: z.array(z.string()).nullish(),
  env: z.array(z.object({ name: z.string(), value: z.string() })).nullish(),
  provideClusterInfo: z.boolean().nullish(),
});
const userEntry = z.object({
  token: text,
  tokenFile: text,
  username: text,
  password: text,
  'client-certificate': text,
  'client-certificate-data': text,
  'client-key': text,
  'client-key-data': text,
  exec: program.nullish(),
  'auth-provider': z.object({ name: z.string() }).nullish(),
});
const printed = z.object({
  status: z.object({
    token: text,
    clientCertificateData: text,
    clientKeyData: text,
    expirationTimestamp: text,
  }),
});
type Printed = z.infer<typeof printed>['status'];
const failure = z.object({
  code: z.union([z.string(), z.number()]).nullish(),
  signal: text,
  stderr: text,
});

/** @throws Error that names the file */
export async function loadLogin({ environment, kubeconfig: path }: ApiAccess): Promise<Login> {
  if (path === undefined) return loadAccount(environment);
  try {
    return readConfig(parse(await readFile(path, 'utf8')), dirname(resolve(path)), environment);
  } catch (error) {
    const why =
      error instanceof z.ZodError
        ? describeIssues(error, 'the file').join('; ')
        : error instanceof Error
          ? error.message
          : String(error);
    throw new Error(why.includes(path) ? why : `${path}: ${why}`, { cause: error });
  }
}

/** The account of the Pod. Its token is renewed about once an hour. */
async function loadAccount(environment: Environment): Promise<Login> {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = environment;
  if (!host || !port)
    throw new Error('KUBERNETES_SERVICE_HOST is not set: the platform does not run in a Pod');
  const read = (name: string) => readFile(`${ACCOUNT}/${name}`, 'utf8');
  return {
    server: `https://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    namespace: (await read('namespace').catch(() => '')).trim() || undefined,
    sign: async () => ({ headers: bear(await read('token')), tls: { ca: await read('ca.crt') } }),
    forget() {},
  };
}

function readConfig(content: unknown, folder: string, environment: Environment): Login {
  const { 'current-context': current, clusters, contexts, users } = kubeconfig.parse(content ?? {});
  const find = (kind: string, list: typeof users, name: string | null | undefined) => {
    const found = list?.find((entry) => entry.name === name);
    if (!found) throw new Error(name ? `it has no ${kind} ${name}` : `it has no current ${kind}`);
    return found[kind] ?? {};
  };
  const context = contextEntry.parse(find('context', contexts, current));
  const cluster = clusterEntry.parse(find('cluster', clusters, context.cluster));
  const user = userEntry.parse(context.user ? find('user', users, context.user) : {});
  if (user['auth-provider']) {
    const { name } = user['auth-provider'];
    throw new Error(
      `the user ${context.user} logs in by auth-provider ${name}; use exec or a token`,
    );
  }
  const credentials = new Credentials({ cluster, environment, folder, user });
  return {
    server: cluster.server.replace(/\/+$/, ''),
    namespace: context.namespace ?? undefined,
    sign: () => credentials.sign(),
    forget: () => credentials.forget(),
  };
}

interface CredentialsOptions {
  cluster: z.infer<typeof clusterEntry>;
  user: z.infer<typeof userEntry>;
  /** Paths are relative to it. */
  folder: string;
  environment: Environment;
}

class Credentials {
  readonly #options: CredentialsOptions;
  /** Last output of the program. */
  #printed: Promise<Printed> | undefined;
  /** Unix ms. */
  #validUntil = Number.POSITIVE_INFINITY;

  constructor(options: CredentialsOptions) {
    this.#options = options;
  }

  async sign(): Promise<{ headers: Record<string, string>; tls: TlsTerms }> {
    const { cluster, folder, user } = this.#options;
    const read = (path: string) => readFile(resolve(folder, path), 'utf8');
    const choose = async (data: string | null | undefined, path: string | null | undefined) =>
      data ? Buffer.from(data, 'base64').toString() : path ? await read(path) : undefined;
    const ca = await choose(
      cluster['certificate-authority-data'],
      cluster['certificate-authority'],
    );
    const { clientCertificateData, clientKeyData, token } = await this.#print(ca);
    const cert =
      clientCertificateData ??
      (await choose(user['client-certificate-data'], user['client-certificate']));
    const key = clientKeyData ?? (await choose(user['client-key-data'], user['client-key']));
    const servername = cluster['tls-server-name'];
    const bearer = user.tokenFile ? await read(user.tokenFile) : (user.token ?? token);
    const basic = user.username ? `${user.username}:${user.password ?? ''}` : undefined;
    return {
      headers: {
        ...(basic && { authorization: `Basic ${toBase64(basic)}` }),
        ...(bearer && bear(bearer)),
      },
      tls: {
        ...(ca && { ca }),
        ...(cert && { cert }),
        ...(key && { key }),
        ...(servername && { servername }),
        ...(cluster['insecure-skip-tls-verify'] && { rejectUnauthorized: false }),
      },
    };
  }

  forget(): void {
    this.#printed = undefined;
    this.#validUntil = Number.POSITIVE_INFINITY;
  }

  /** Runs the program once for all calls that need its credentials. */
  #print(ca: string | undefined): Promise<Partial<Printed>> {
    const { exec } = this.#options.user;
    if (!exec) return Promise.resolve({});
    if (this.#validUntil < Date.now()) this.forget();
    this.#printed ??= this.#run(exec, ca).catch((error: unknown) => {
      this.forget();
      throw error;
    });
    return this.#printed;
  }

  /** @throws Error with what the program says of its failure; users see it, so it has no arguments and no credentials */
  async #run(exec: z.infer<typeof program>, ca: string | undefined): Promise<Printed> {
    const { apiVersion, args, command, env, provideClusterInfo } = exec;
    const { cluster, environment, folder } = this.#options;
    const described = { ...cluster, 'certificate-authority-data': ca && toBase64(ca) };
    const spec = { interactive: false, ...(provideClusterInfo && { cluster: described }) };
    const info = JSON.stringify({ apiVersion, kind: 'ExecCredential', spec });
    const own = Object.fromEntries((env ?? []).map(({ name, value }) => [name, value]));
    // Without a slash, the program is found by PATH.
    const path = command.includes('/') ? resolve(folder, command) : command;
    const variables = { ...environment, ...own, KUBERNETES_EXEC_INFO: info };
    const options = { timeout: PROGRAM_LIMIT_MS, env: variables };
    const { stdout } = await execute(path, args ?? [], options).catch((error: unknown) => {
      throw new Error(`the program ${command} failed: ${describeFailure(error)}`);
    });
    const { data } = printed.safeParse(parseJson(stdout));
    if (!data) throw new Error(`the program ${command} prints no ExecCredential`);
    const { expirationTimestamp: end } = data.status;
    const expiresAt = end ? Date.parse(end) : Number.POSITIVE_INFINITY;
    if (Number.isNaN(expiresAt)) {
      const shown = JSON.stringify(end?.slice(0, 100));
      throw new Error(
        `the program ${command} prints an expirationTimestamp that is no date: ${shown}`,
      );
    }
    this.#validUntil = expiresAt - EXPIRY_MARGIN_MS;
    return data.status;
  }
}

function describeFailure(error: unknown): string {
  const { code, signal, stderr } = failure.parse(error);
  return stderr?.trim() || `${code ?? signal}`;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function toBase64(text: string): string {
  return Buffer.from(text).toString('base64');
}

function bear(token: string): Record<string, string> {
  return { authorization: `Bearer ${token.trim()}` };
}
