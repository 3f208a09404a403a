// A small server of the Kubernetes API: the REST routes that Millrace uses, with versions, watches,
// selectors, graces, finalizers and tokens as a real API server has them.
// test/conformance/kubernetes compares it with one.
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { request as callKubelet, createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { Certificate } from '../../certificates.ts';
import { badRequest, KubeError, type KubeObject } from '../objects.ts';
import { kubeletAddressOf } from './kubelet-address.ts';
import { ObjectStore } from './object-store.ts';
import { PODS, parsePath, type ResourcePath } from './resources.ts';
import { parseFieldSelector, parseLabelSelector } from './selectors.ts';
import { type NamedPath, Verbs } from './verbs.ts';
import { describeList, describeMetadata, describeProblem, Watch } from './watch.ts';

const MAX_BODY_BYTES = 3 * 1024 * 1024;
/** Of watches without an own limit. */
const WATCH_MS = 30 * 60_000;

const METRICS = /^\/apis\/metrics\.k8s\.io\/v1beta1\/namespaces\/([^/]+)\/pods\/([^/]+)$/;
const SUCCESS = { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' };

interface Answer {
  status: number;
  body: unknown;
}

interface WrittenBody {
  body: unknown;
  /** Media type. */
  type: string;
}

export class ApiStandIn {
  readonly #server: Server;
  readonly #store = new ObjectStore();
  readonly #verbs = new Verbs(this.#store);
  readonly #watches = new Set<Watch>();
  readonly #tokens = new Set<string>();
  #port = 0;
  #refusal: KubeError | undefined;
  /** Called before each request with a valid token is carried out, which waits for the result. */
  hold: ((token: string, method: string) => Promise<void> | undefined) | undefined;
  /** How far its clock, as its answers tell it, is ahead of this machine's, ms. */
  aheadMs = 0;
  /** Method and path of each request, without its query. */
  readonly calls: string[] = [];

  private constructor(certificate: Certificate) {
    this.#server = createServer(certificate, (request, response) => {
      response.setHeader('date', new Date(Date.now() + this.aheadMs).toUTCString());
      this.#serve(request, response).catch((error: unknown) => this.#fail(response, error));
    });
  }

  /** `certificate`: for `localhost`. */
  static async start(certificate: Certificate): Promise<ApiStandIn> {
    const standIn = new ApiStandIn(certificate);
    standIn.#server.listen(0, '127.0.0.1');
    await once(standIn.#server, 'listening');
    const address: AddressInfo | string | null = standIn.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    standIn.#port = address.port;
    return standIn;
  }

  get url(): string {
    return `https://localhost:${this.#port}`;
  }

  allowToken(token: string): void {
    this.#tokens.add(token);
  }

  /** From now on requests with the token are answered 401; its watches go on. */
  revokeToken(token: string): void {
    this.#tokens.delete(token);
  }

  /** Forgets all earlier versions: the next watch from one of them fails with 410. */
  compact(): void {
    this.#store.compact();
  }

  /** Ends the open watches with an error, or as a broken connection does. */
  breakWatches(how: 'expired' | 'cut'): void {
    for (const watch of [...this.#watches]) {
      if (how === 'expired') watch.fail(new KubeError(410, 'Expired', 'too old resource version'));
    }
    if (how === 'cut') this.#server.closeAllConnections();
  }

  sendBookmarks(): void {
    for (const watch of this.#watches) watch.sendBookmark();
  }

  /** Answers every later request with the error; undefined serves again. */
  refuseAll(refusal: KubeError | undefined): void {
    this.#refusal = refusal;
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.url);
    this.calls.push(`${request.method} ${url.pathname}`);
    if (this.#refusal) throw this.#refusal;
    const [scheme, token = ''] = (request.headers.authorization ?? '').split(' ');
    if (scheme !== 'Bearer' || !this.#tokens.has(token)) {
      throw new KubeError(401, 'Unauthorized', 'Unauthorized');
    }
    await this.hold?.(token, request.method ?? '');
    if (url.pathname === '/version') {
      answer(response, { status: 200, body: { major: '1', minor: '20+' } });
      return;
    }
    const metrics = METRICS.exec(url.pathname);
    if (metrics) {
      const [, namespace, name = ''] = metrics;
      const pod = this.#readOne({ resource: PODS, part: undefined, namespace, name });
      await this.#proxy(pod, url.pathname, response);
      return;
    }
    const path = parsePath(url.pathname);
    if (!path) throw new KubeError(404, 'NotFound', 'the server could not find the resource');
    const { method } = request;
    if (method === 'GET') {
      const { name, part, resource } = path;
      const isLog = part === 'log' && resource.kind === 'Pod';
      if (name === undefined) this.#readAll(path, url.searchParams, response);
      else if (isLog) await this.#proxyLog({ ...path, name }, url.searchParams, response);
      else answer(response, { status: 200, body: this.#readOne({ ...path, name }) });
      return;
    }
    const text = await readBody(request);
    const body: unknown = text === '' ? undefined : parseJson(text);
    const type = request.headers['content-type']?.split(';')[0] ?? '';
    answer(response, this.#write(method ?? '', path, { body, type }));
  }

  #readOne({ name, namespace, part, resource }: NamedPath): KubeObject {
    if (part !== undefined && part !== 'status') throw new KubeError(404, 'NotFound', part);
    return this.#store.get(resource, namespace, name);
  }

  #readAll(path: ResourcePath, query: URLSearchParams, response: ServerResponse): void {
    const isLabelled = parseLabelSelector(query.get('labelSelector') ?? '');
    const hasFields = parseFieldSelector(query.get('fieldSelector') ?? '');
    const selects = (each: KubeObject) => isLabelled(each) && hasFields(each);
    if (!['1', 'true'].includes(query.get('watch') ?? '')) {
      const items = this.#store.list(path.resource, path.namespace).filter(selects);
      const { version } = this.#store;
      const isPartial = response.req.headers.accept?.includes('as=PartialObjectMetadataList');
      const body = isPartial
        ? describeMetadata(items, version)
        : describeList(path, items, version);
      answer(response, { status: 200, body });
      return;
    }
    const version = query.get('resourceVersion') ?? '';
    const seconds = query.get('timeoutSeconds');
    const watch = new Watch(response, {
      store: this.#store,
      path,
      selects,
      since: version === '' || version === '0' ? undefined : Number(version),
      timeoutMs: seconds === null ? WATCH_MS : Number(seconds) * 1_000,
      bookmarks: query.get('allowWatchBookmarks') === 'true' ? 'wanted' : 'none',
    });
    this.#watches.add(watch);
    response.once('close', () => this.#watches.delete(watch));
  }

  /** The kubelet of the pod's node has its log. */
  async #proxyLog(path: NamedPath, query: URLSearchParams, response: ServerResponse) {
    const pod = this.#store.get(path.resource, path.namespace, path.name);
    if (!pod.spec?.['nodeName']) {
      response.writeHead(204).end();
      return;
    }
    const container = query.get('container') ?? findContainer(pod.spec?.['containers']);
    query.delete('container');
    const target = `/containerLogs/${path.namespace}/${path.name}/${container}?${query}`;
    await this.#proxy(pod, target, response);
  }

  /** Passes an answer of the kubelet of the pod's node on. */
  async #proxy(pod: KubeObject, target: string, response: ServerResponse): Promise<void> {
    const address = kubeletAddressOf(this.#store, pod);
    const call = callKubelet(new URL(target, address), { rejectUnauthorized: false }).end();
    response.once('close', () => call.destroy());
    const [reply]: IncomingMessage[] = await once(call, 'response');
    const { statusCode = 502 } = reply ?? {};
    if (!reply || statusCode !== 200) {
      const message = reply ? await readBody(reply) : 'the kubelet gave no answer';
      throw new KubeError(statusCode, statusCode === 400 ? 'BadRequest' : 'NotFound', message);
    }
    response.writeHead(200, { 'content-type': reply.headers['content-type'] ?? 'text/plain' });
    response.flushHeaders();
    await pipeline(reply, response);
  }

  #write(method: string, path: ResourcePath, { body, type }: WrittenBody): Answer {
    const { name, part, resource } = path;
    if (method === 'POST' && name === undefined) {
      return { status: 201, body: this.#verbs.create(path, body) };
    }
    if (name === undefined) throw notAllowed();
    const named = { ...path, name };
    if (method === 'POST' && part === 'binding' && resource.kind === 'Pod') {
      this.#verbs.bind(named, body);
      return { status: 201, body: SUCCESS };
    }
    if (part !== undefined && !(part === 'status' && resource.hasStatus)) throw notAllowed();
    if (method === 'PUT') return { status: 200, body: this.#verbs.replace(named, body) };
    if (method === 'PATCH') return { status: 200, body: this.#verbs.patch(named, type, body) };
    if (method !== 'DELETE' || part !== undefined) throw notAllowed();
    const object = this.#verbs.remove(named, body);
    const remains = this.#store.has(resource, path.namespace, name);
    if (remains || resource.returnsRemoved) return { status: 200, body: object };
    const details = { name, kind: resource.plural, uid: object.metadata.uid };
    return { status: 200, body: { ...SUCCESS, details } };
  }

  #fail(response: ServerResponse, error: unknown): void {
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return;
    }
    const known =
      error instanceof KubeError ? error : new KubeError(500, 'InternalError', String(error));
    answer(response, { status: known.code, body: describeProblem(known) });
  }
}

function findContainer(containers: unknown): string {
  const [first] = Array.isArray(containers) ? containers : [];
  return first && typeof first === 'object' && 'name' in first ? String(first.name) : '';
}

function notAllowed(): KubeError {
  return new KubeError(405, 'MethodNotAllowed', 'the server does not allow this method');
}

function answer(response: ServerResponse, { body, status }: Answer): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

async function readBody(stream: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of stream) {
    bytes += part.length;
    if (bytes > MAX_BODY_BYTES) throw new KubeError(413, 'RequestEntityTooLarge', 'too large');
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw badRequest('the request body is not JSON');
  }
}
