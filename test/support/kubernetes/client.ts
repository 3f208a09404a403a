// A client of the Kubernetes API for tests and for the kubelet stand-in.

import { Agent, request } from 'undici';
import { z } from 'zod';
import {
  KubeError,
  type KubeObject,
  objectSchema,
  type WatchEventType,
  watchEventSchema,
} from './objects.ts';

const listSchema = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string() }),
  items: z.array(objectSchema),
});

const problemSchema = z.looseObject({
  reason: z.string().default('Unknown'),
  message: z.string().default(''),
});

export interface KubeAccess {
  url: string;
  /** Certificate authority, PEM. */
  ca: string;
  token: string;
}

export interface KubeEvent {
  type: WatchEventType;
  object: z.infer<typeof watchEventSchema>['object'];
}

export interface KubeList {
  version: string;
  items: KubeObject[];
}

export class KubeClient {
  readonly access: KubeAccess;
  readonly #agent: Agent;

  constructor(access: KubeAccess) {
    this.access = access;
    // Without limits of time: watches and logs stay open.
    this.#agent = new Agent({ connect: { ca: access.ca }, bodyTimeout: 0, headersTimeout: 0 });
  }

  /** @returns status and body of any answer */
  async call(method: Method, path: string, { accept, body, signal, type }: CallOptions = {}) {
    return request(new URL(path, this.access.url), {
      method,
      dispatcher: this.#agent,
      headers: {
        authorization: `Bearer ${this.access.token}`,
        'content-type': type ?? 'application/json',
        accept: accept ?? 'application/json',
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
    });
  }

  async #callObject(method: Method, path: string, options: CallOptions = {}): Promise<KubeObject> {
    return objectSchema.parse(await this.#callJson(method, path, options));
  }

  async #callJson(method: Method, path: string, options: CallOptions = {}): Promise<unknown> {
    const { body, statusCode } = await this.call(method, path, options);
    const text = await body.text();
    if (statusCode >= 300) throw readProblem(statusCode, text);
    return JSON.parse(text);
  }

  /** @throws KubeError, like all verbs below */
  get(path: string): Promise<KubeObject> {
    return this.#callObject('GET', path);
  }

  /** Undefined if it does not exist. */
  async find(path: string): Promise<KubeObject | undefined> {
    return this.get(path).catch((error: unknown) => {
      if (error instanceof KubeError && error.code === 404) return undefined;
      throw error;
    });
  }

  async list(path: string): Promise<KubeList> {
    const { items, metadata } = listSchema.parse(await this.#callJson('GET', path));
    return { items, version: metadata.resourceVersion };
  }

  create(path: string, body: unknown): Promise<KubeObject> {
    return this.#callObject('POST', path, { body });
  }

  replace(path: string, body: unknown): Promise<KubeObject> {
    return this.#callObject('PUT', path, { body });
  }

  patch(path: string, body: unknown, type: PatchType = 'merge-patch'): Promise<KubeObject> {
    return this.#callObject('PATCH', path, { body, type: `application/${type}+json` });
  }

  /** A creation that answers with a `Status`. */
  async post(path: string, body: unknown): Promise<void> {
    await this.#callJson('POST', path, { body });
  }

  /** @returns the metadata of the object, if it remains for a while */
  async remove(path: string, options: unknown = {}): Promise<KubeObject['metadata']> {
    const answer = await this.#callJson('DELETE', path, { body: options });
    return objectSchema.pick({ metadata: true }).parse(answer).metadata;
  }

  async readLog(path: string): Promise<string> {
    const { body, statusCode } = await this.call('GET', path);
    const text = await body.text();
    // 204: of a pod without a node.
    if (statusCode !== 200 && statusCode !== 204) throw readProblem(statusCode, text);
    return text;
  }

  /** The events of one watch, until the server ends it or the signal aborts. */
  async *watch(path: string, signal?: AbortSignal): AsyncGenerator<KubeEvent, void, void> {
    const { body, statusCode } = await this.call('GET', path, signal && { signal });
    if (statusCode !== 200) throw readProblem(statusCode, await body.text());
    let rest = '';
    body.setEncoding('utf8');
    for await (const text of body) {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) yield watchEventSchema.parse(JSON.parse(line));
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
type PatchType = 'merge-patch' | 'json-patch' | 'strategic-merge-patch';

interface CallOptions {
  body?: unknown;
  type?: string;
  accept?: string;
  signal?: AbortSignal;
}

function readProblem(code: number, text: string): KubeError {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    parsed = { message: text };
  }
  const { message, reason } = problemSchema.parse(parsed);
  return new KubeError(code, reason, message);
}
