// Calls a Docker-compatible engine: loads the client library on first use and limits each call in
// time. Callers interpret the answers.
import type Docker from 'dockerode';
import { EngineError } from '../engine.ts';

export const DEFAULT_HOST = 'unix:///var/run/docker.sock';
/** Engines that are busy with disks answer late. */
const CALL_LIMIT_MS = 30_000;
/** A connection, streams included, that is silent for this long is given up, ms. */
const SILENCE_MS = 300_000;
const NOT_FOUND = 404;

/** The engine answered with an error; its text is the message. */
export class DockerError extends Error {
  override readonly name = 'DockerError';
  readonly status: number;

  constructor(status: number, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.status = status;
  }
}

export type DockerCall<T> = (docker: Docker) => Promise<T>;

export class DockerClient {
  readonly #host: string;
  readonly #address: Docker.DockerOptions;
  readonly #callLimitMs: number;
  #docker: Promise<Docker> | undefined;

  /** `host`: `unix:///path` or `tcp://host:port`. @throws Error for another form */
  constructor(host = DEFAULT_HOST, callLimitMs = CALL_LIMIT_MS) {
    this.#host = host;
    this.#callLimitMs = callLimitMs;
    this.#address = parseHost(host);
  }

  /** The engine is on this machine, as far as its address tells. */
  get isLocal(): boolean {
    return this.#address.socketPath !== undefined;
  }

  /** @throws DockerError @throws EngineError `unavailable` if the engine did not answer */
  async ask<T>(question: DockerCall<T>, limitMs = this.#callLimitMs): Promise<T> {
    const deadline = AbortSignal.timeout(limitMs);
    try {
      const docker = await this.load();
      return await Promise.race([question(docker), rejectAt(deadline)]);
    } catch (error) {
      throw this.translate(error);
    }
  }

  /** Undefined if the object does not exist. */
  async find<T>(question: DockerCall<T>): Promise<T | undefined> {
    try {
      return await this.ask(question);
    } catch (error) {
      if (error instanceof DockerError && error.status === NOT_FOUND) return undefined;
      throw error;
    }
  }

  /**
   * Returns the engine's error instead of throwing it: the caller inspects the container
   * afterwards.
   */
  async act(question: DockerCall<unknown>, limitMs?: number): Promise<DockerError | undefined> {
    try {
      await this.ask(question, limitMs);
      return undefined;
    } catch (error) {
      if (error instanceof DockerError) return error;
      throw error;
    }
  }

  /** The library loads protocol buffers and SSH, which other platforms do not need. */
  load(): Promise<Docker> {
    this.#docker ??= import('dockerode').then(({ default: Client }) => new Client(this.#address));
    return this.#docker;
  }

  translate(error: unknown): DockerError | EngineError {
    if (error instanceof DockerError || error instanceof EngineError) return error;
    const answer = readAnswer(error);
    if (answer) return answer;
    const reason = error instanceof Error ? error.message : String(error);
    const message = `the engine at ${this.#host} does not answer: ${reason}`;
    return new EngineError('unavailable', message, { cause: error });
  }
}

function rejectAt(deadline: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    deadline.addEventListener('abort', () => reject(deadline.reason), { once: true });
  });
}

function readAnswer(error: unknown): DockerError | undefined {
  if (!(error instanceof Error && 'statusCode' in error)) return undefined;
  const { statusCode } = error;
  if (typeof statusCode !== 'number') return undefined;
  const body = 'json' in error ? error.json : undefined;
  const hasMessage = typeof body === 'object' && body !== null && 'message' in body;
  // If the library has not read the body, it prefixes the message with its own words.
  const message = hasMessage
    ? String(body.message)
    : error.message.replace(/^\(HTTP code .*? - /, '');
  return new DockerError(statusCode, message.trim(), { cause: error });
}

/** Sets every member that the library would otherwise take from the environment. */
const DEFAULTS: Docker.DockerOptions = {
  ...{ socketPath: undefined, host: undefined, port: undefined, protocol: 'http' },
  ...{ ca: undefined, cert: undefined, key: undefined, timeout: SILENCE_MS },
};

function parseHost(host: string): Docker.DockerOptions {
  const url = URL.canParse(host) ? new URL(host) : undefined;
  if (url?.protocol === 'unix:' && url.pathname !== '') {
    return { ...DEFAULTS, socketPath: decodeURIComponent(url.pathname) };
  }
  if (url?.protocol === 'tcp:' && url.port !== '') {
    return { ...DEFAULTS, host: url.hostname, port: url.port };
  }
  throw new Error(`${host} is not an engine address; write unix:///path or tcp://host:port`);
}
