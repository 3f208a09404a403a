// Calls a Docker-compatible engine: one request, one answer, bounded in time and size. Judges error answers, and takes
// logs apart; callers interpret all other answers. `Images` pulls the images of containers.
import { Agent, type Dispatcher, request } from 'undici';
import { z } from 'zod';
import type { Log } from '../../base/log.ts';
import { readBody, readDocuments, readErrorText } from '../answers.ts';
import { EngineError, type RegistryLogin } from '../engine.ts';

export const DEFAULT_HOST = 'unix:///var/run/docker.sock';
/** Engines that are busy with disks answer late. */
const CALL_LIMIT_MS = 30_000;
/** A stream that is silent for this long is given up, ms. */
const SILENCE_MS = 300_000;
const NOT_FOUND = 404;

const errorAnswer = z.object({ message: z.string() });
const containerList = z.array(z.object({ Labels: z.record(z.string(), z.string()).nullish() }));

/** The engine answered with an error; its text is the message. */
export class DockerError extends Error {
  override readonly name = 'DockerError';
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export interface DockerCall {
  /** Default: GET. */
  method?: 'GET' | 'POST' | 'DELETE';
  /** Names in it are encoded. */
  path: string;
  query?: Readonly<Record<string, string | number | boolean>>;
  body?: unknown;
  headers?: Readonly<Record<string, string>>;
}

export class DockerClient {
  readonly #host: string;
  readonly #origin: string;
  readonly #agent: Agent;
  readonly #callLimitMs: number;
  /** The address of the engine is one of this machine. */
  readonly isLocal: boolean;

  /** `host`: `unix:///path` or `tcp://host:port`. @throws Error for another form */
  constructor(host = DEFAULT_HOST, callLimitMs = CALL_LIMIT_MS) {
    const { origin, socketPath } = parseHost(host);
    this.#host = host;
    this.#origin = origin;
    this.#callLimitMs = callLimitMs;
    this.isLocal = socketPath !== undefined;
    // Each call has a limit of its own.
    const timeouts = { headersTimeout: 0, bodyTimeout: 0 };
    this.#agent = new Agent({ ...timeouts, ...(socketPath && { connect: { socketPath } }) });
  }

  /**
   * @returns the answer's JSON; undefined for an answer without content
   * @throws DockerError @throws EngineError `unavailable` if the engine did not answer
   */
  async ask(call: DockerCall, limitMs = this.#callLimitMs): Promise<unknown> {
    const bytes = await this.#read(call, limitMs);
    try {
      return bytes.length === 0 ? undefined : JSON.parse(bytes.toString());
    } catch (error) {
      throw this.translate(error);
    }
  }

  /** Returns undefined if the object does not exist. @throws like `ask` */
  find(call: DockerCall): Promise<unknown> {
    return this.ask(call).catch(skipMissing);
  }

  /**
   * An answer of any size that the caller reads, within the time of a call. Undefined if the object does not exist.
   * @throws like `ask`
   */
  async findStream(call: DockerCall): Promise<AsyncIterable<Buffer> | undefined> {
    try {
      return (await this.#send(call, { signal: AbortSignal.timeout(this.#callLimitMs) })).body;
    } catch (error) {
      return skipMissing(this.translate(error));
    }
  }

  /** @returns the labels of each container, also of those that have ended @throws like `ask` */
  async listContainers(query: { filters: string }): Promise<Readonly<Record<string, string>>[]> {
    const call = { path: '/containers/json', query: { ...query, all: true } };
    return containerList.parse(await this.ask(call)).map(({ Labels }) => Labels ?? {});
  }

  /**
   * Returns the engine's error instead of throwing it: the caller inspects the container
   * afterwards.
   */
  async act(call: DockerCall, limitMs?: number): Promise<DockerError | undefined> {
    try {
      await this.ask(call, limitMs);
      return undefined;
    } catch (error) {
      if (error instanceof DockerError) return error;
      throw error;
    }
  }

  /** An answer without an end that the caller reads; its errors need `translate`. @throws DockerError, and undici's errors */
  async open(call: DockerCall, signal?: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const silence = { headersTimeout: SILENCE_MS, bodyTimeout: SILENCE_MS };
    return (await this.#send(call, { ...silence, signal: signal ?? null })).body;
  }

  translate(error: unknown): DockerError | EngineError {
    if (error instanceof DockerError || error instanceof EngineError) return error;
    const reason = error instanceof Error ? error.message : String(error);
    const message = `the engine at ${this.#host} does not answer: ${reason}`;
    return new EngineError('unavailable', message, { cause: error });
  }

  /** Ends all calls. */
  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #read(call: DockerCall, limitMs = this.#callLimitMs): Promise<Buffer> {
    try {
      const { body } = await this.#send(call, { signal: AbortSignal.timeout(limitMs) });
      return await readBody(body);
    } catch (error) {
      throw this.translate(error);
    }
  }

  async #send(
    { body, headers = {}, method = 'GET', path, query = {} }: DockerCall,
    options: Pick<Dispatcher.RequestOptions, 'signal' | 'headersTimeout' | 'bodyTimeout'>,
  ): Promise<Dispatcher.ResponseData> {
    const answer = await request(this.#origin + path, {
      ...options,
      dispatcher: this.#agent,
      method,
      query,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      body: body === undefined ? null : JSON.stringify(body),
    });
    if (answer.statusCode < 300) return answer;
    throw new DockerError(answer.statusCode, readMessage(await readErrorText(answer.body)));
  }
}

function skipMissing(error: unknown): undefined {
  if (!(error instanceof DockerError && error.status === NOT_FOUND)) throw error;
}

/** Engines answer JSON; a proxy in front of one may not. */
function readMessage(text: string): string {
  try {
    return errorAnswer.parse(JSON.parse(text)).message.trim();
  } catch {
    return text.trim();
  }
}

function parseHost(host: string): { origin: string; socketPath?: string } {
  const url = URL.canParse(host) ? new URL(host) : undefined;
  if (url?.protocol === 'unix:' && url.pathname !== '') {
    return { origin: 'http://docker', socketPath: decodeURIComponent(url.pathname) };
  }
  if (url?.protocol === 'tcp:' && url.port !== '') return { origin: `http://${url.host}` };
  throw new Error(`${host} is not an engine address; write unix:///path or tcp://host:port`);
}

const BAD_REQUEST = 400;
/** Exit codes of a shell: not executable, and not found. */
const NO_COMMAND = [126, 127];
const AMBIGUOUS = /network .*is ambiguous/i;

/** The name of a container or network is already in use; Docker and podman use the same words. */
export function isNameTaken({ message }: DockerError): boolean {
  return /already (in use|exists|used)/i.test(message);
}

/** Two networks have the name of the container's network. */
export function isNetworkAmbiguous({ message }: DockerError): boolean {
  return AMBIGUOUS.test(message);
}

/** Only few file systems support disks of a limited size. */
export function isAboutDiskSize({ message }: DockerError): boolean {
  return /storage[ -]?opt|quota/i.test(message);
}

const PERMANENT = [
  /executable file .*not found|no such file or directory|permission denied|exec format error/i,
  /could not select device driver|CDI device|unknown device|no known GPU vendor/i,
  /invalid reference format/i,
];
/** Errors that look like a fault of the request but come from the machine. */
const TEMPORARY =
  /bind source path does not exist|statfs|network .*not found|address already in use/i;

/** Judges a failed create or start. `exitCode`: of the container afterwards, if it exists. */
export function judgeRefusal(answer: DockerError, exitCode: number | null): EngineError {
  const { message, status } = answer;
  const isCommand = exitCode !== null && NO_COMMAND.includes(exitCode);
  const isPermanent =
    isCommand || status === BAD_REQUEST || PERMANENT.some((pattern) => pattern.test(message));
  const isTemporary = AMBIGUOUS.test(message) || TEMPORARY.test(message);
  const code = isPermanent && !isTemporary ? 'refused' : 'unavailable';
  return new EngineError(code, message, { cause: answer });
}

const NO_SUCH_IMAGE =
  /not found|manifest unknown|no such image|denied|unauthorized|authentication required|no basic auth credentials|incorrect username|invalid reference|no matching manifest/i;
/** An unreachable registry, in words that also match some of the above. */
const NO_REGISTRY = /dial tcp|lookup|no such host|connection refused|timeout|TLS|toomanyrequests/i;

export function judgePull(image: string, message: string): EngineError {
  const isPermanent = NO_SUCH_IMAGE.test(message) && !NO_REGISTRY.test(message);
  const text = `the image ${image} cannot be pulled: ${message}`;
  return new EngineError(isPermanent ? 'refused' : 'unavailable', text);
}

const HEADER_BYTES = 8;
const LENGTH_AT = 4;

/**
 * Takes a log apart: pieces of both outputs, each behind a header of eight bytes. Returns the pieces without their
 * headers, in order; those that arrive together as one.
 */
export async function* joinPieces(answer: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const header = Buffer.alloc(HEADER_BYTES);
  let headerBytes = 0;
  let missing = 0;
  for await (const bytes of answer) {
    const parts: Buffer[] = [];
    let at = 0;
    while (at < bytes.length) {
      const part = bytes.subarray(at, at + missing);
      parts.push(part);
      missing -= part.length;
      at += part.length;
      if (missing > 0) break;
      const read = bytes.copy(header, headerBytes, at);
      headerBytes += read;
      at += read;
      if (headerBytes < HEADER_BYTES) break;
      headerBytes = 0;
      missing = header.readUInt32BE(LENGTH_AT);
    }
    yield Buffer.concat(parts);
  }
}

const pullProgress = z.object({ error: z.string().optional(), status: z.string().optional() });

const DEFAULT_REGISTRY = 'docker.io';
/** Other names of Docker Hub. */
const HUB_NAMES = new Set(['index.docker.io', 'registry-1.docker.io', 'registry.hub.docker.com']);

export interface ImagesOptions {
  client: DockerClient;
  log: Log;
}

export class Images {
  readonly #client: DockerClient;
  readonly #log: Log;

  constructor({ client, log }: ImagesOptions) {
    this.#client = client;
    this.#log = log;
  }

  /** Resolves when the image is present. `onPull` is called if it has to be pulled. @throws EngineError */
  async provide(image: string, login: RegistryLogin | null, onPull?: () => void): Promise<void> {
    const isThere = await this.#client.find({ path: `/images/${encodePath(image)}/json` });
    if (isThere) return;
    if (login && readRegistry(image) !== readServer(login.server)) {
      const detail = `its registry is ${readRegistry(image)}, and the login is for ${login.server}`;
      throw new EngineError('refused', `the image ${image} is not pulled: ${detail}`);
    }
    this.#log.info({ image }, 'pulling image');
    onPull?.();
    await this.#pull(image, login);
  }

  async #pull(image: string, login: RegistryLogin | null): Promise<void> {
    try {
      const progress = await this.#client.open({
        method: 'POST',
        path: '/images/create',
        query: { fromImage: withTag(image) },
        headers: login ? describeLogin(login) : {},
      });
      for await (const document of readDocuments(progress)) {
        const { error, status } = pullProgress.parse(document);
        if (error !== undefined) throw judgePull(image, error);
        this.#log.debug({ image, status }, 'pulling');
      }
    } catch (error) {
      const known = this.#client.translate(error);
      throw known instanceof DockerError ? judgePull(image, known.message) : known;
    }
  }
}

function describeLogin({ password, server, username }: RegistryLogin) {
  const login = Buffer.from(JSON.stringify({ username, password, serveraddress: server }));
  // Old engines want the URL alphabet with padding.
  const text = login.toString('base64').replaceAll('+', '-').replaceAll('/', '_');
  return { 'x-registry-auth': text };
}

function encodePath(image: string): string {
  return image.split('/').map(encodeURIComponent).join('/');
}

/** Without a tag an engine would pull all tags. */
function withTag(image: string): string {
  return /@|:[^/]+$/.test(image) ? image : `${image}:latest`;
}

/** The host that the image is pulled from, which receives the credentials. */
export function readRegistry(image: string): string {
  const [first = '', ...rest] = image.split('/');
  const isHost = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost');
  return isHost ? readServer(first) : DEFAULT_REGISTRY;
}

function readServer(server: string): string {
  const [host = ''] = server.replace(/^https?:\/\//, '').split('/');
  return HUB_NAMES.has(host) ? DEFAULT_REGISTRY : host;
}
