// Calls to a Docker-compatible engine: loads the client when the first one is made, and gives each call
// a limit in time. What an answer means is judged by those who asked.
import type Docker from 'dockerode';
import { EngineError } from '../engine.ts';

export const DEFAULT_HOST = 'unix:///var/run/docker.sock';
/** Engines that are busy with disks answer late. */
const CALL_LIMIT_MS = 30_000;
/** A connection on which nothing comes for so long, streams too, is given up. */
const SILENCE_MS = 300_000;
const NOT_FOUND = 404;

/** The engine understood, and says no; its words are the message. */
export class AnswerError extends Error {
  override readonly name = 'AnswerError';
  readonly status: number;

  constructor(status: number, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.status = status;
  }
}

export type Question<T> = (docker: Docker) => Promise<T>;

export class DockerClient {
  readonly #host: string;
  readonly #address: Docker.DockerOptions;
  readonly #callLimitMs: number;
  #docker: Promise<Docker> | undefined;

  /** `host`: `unix:///path` or `tcp://host:port`. @throws Error if it is neither */
  constructor(host = DEFAULT_HOST, callLimitMs = CALL_LIMIT_MS) {
    this.#host = host;
    this.#callLimitMs = callLimitMs;
    this.#address = parseHost(host);
  }

  /** @throws AnswerError @throws EngineError `unavailable` where there was no answer */
  async ask<T>(question: Question<T>, limitMs = this.#callLimitMs): Promise<T> {
    const deadline = AbortSignal.timeout(limitMs);
    try {
      const docker = await this.load();
      return await Promise.race([question(docker), rejectAt(deadline)]);
    } catch (error) {
      throw this.translate(error);
    }
  }

  /** Undefined where what is asked about is not there. */
  async find<T>(question: Question<T>): Promise<T | undefined> {
    try {
      return await this.ask(question);
    } catch (error) {
      if (error instanceof AnswerError && error.status === NOT_FOUND) return undefined;
      throw error;
    }
  }

  /** The engine's no is an answer like others: what it is worth shows in a look afterwards. */
  async act(question: Question<unknown>, limitMs?: number): Promise<AnswerError | undefined> {
    try {
      await this.ask(question, limitMs);
      return undefined;
    } catch (error) {
      if (error instanceof AnswerError) return error;
      throw error;
    }
  }

  /** It comes with protocol buffers and SSH, which nobody needs who has no engine of this kind. */
  load(): Promise<Docker> {
    this.#docker ??= import('dockerode').then(({ default: Client }) => new Client(this.#address));
    return this.#docker;
  }

  translate(error: unknown): AnswerError | EngineError {
    if (error instanceof AnswerError || error instanceof EngineError) return error;
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

function readAnswer(error: unknown): AnswerError | undefined {
  if (!(error instanceof Error && 'statusCode' in error)) return undefined;
  const { statusCode } = error;
  if (typeof statusCode !== 'number') return undefined;
  const body = 'json' in error ? error.json : undefined;
  const isTold = typeof body === 'object' && body !== null && 'message' in body;
  // The client's own words stand in front where it has not read the body.
  const message = isTold ? String(body.message) : error.message.replace(/^\(HTTP code .*? - /, '');
  return new AnswerError(statusCode, message.trim(), { cause: error });
}

/** With every member that the client would take from the environment otherwise. */
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
