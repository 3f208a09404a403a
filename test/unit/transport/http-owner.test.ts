// The HTTP link and the owner of the endpoint, as the platform tells it: which server gets which call.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createSecureServer, Server as SecureServer } from 'node:https';
import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../../src/base/log.ts';
import { createHttpLink } from '../../../src/transport/http-link.ts';
import type { RoutedLink } from '../../../src/transport/routed-link.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../support/certificates.ts';

type Handle = (response: ServerResponse, request: IncomingMessage) => void;

/** A node of the platform: answers renewals, and counts them. */
class Node {
  readonly #server: Server | SecureServer;
  calls = 0;
  /** Told with each answer. */
  owner: Node | undefined;
  handle: Handle = (response) => this.answer(response);

  private constructor(server: Server | SecureServer) {
    this.#server = server;
  }

  static async start({ isSecure = false } = {}): Promise<Node> {
    const listener = (request: IncomingMessage, response: ServerResponse) => {
      request.resume().on('end', () => {
        node.calls += 1;
        node.handle(response, request);
      });
    };
    const pem = { cert: CERTIFICATE, key: CERTIFICATE_KEY };
    const server = isSecure ? createSecureServer(pem, listener) : createServer(listener);
    const node: Node = new Node(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => node.stop());
    return node;
  }

  get url(): string {
    const address = this.#server.address();
    const scheme = this.#server instanceof SecureServer ? 'https' : 'http';
    return `${scheme}://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  }

  answer(response: ServerResponse): void {
    const told = this.owner && { 'millrace-owner': this.owner.url };
    response.writeHead(200, { 'content-type': 'application/json', ...told });
    response.end(JSON.stringify({ ended: [], drain: false }));
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

async function startTwo() {
  const [configured, owner] = [await Node.start(), await Node.start()];
  configured.owner = owner;
  const link = createHttpLink({
    ...{ url: configured.url, endpointId: 'echo', key: 'mr_k', log: silentLog },
    // No answer of a test is late.
    answerMarginMs: 600_000,
  });
  onTestFinished(() => link.close());
  const counts = () => [configured.calls, owner.calls];
  return { configured, owner, link, counts };
}

const never = new AbortController().signal;
const identity = { workerId: 'w1', incarnation: 3 };
const DONE = { ended: [], drain: false };

const renew = (link: RoutedLink, signal = never) =>
  link.renew({ ...identity, waitMs: 0, leases: [] }, signal);

const refuse = (status: number, body: unknown = {}): Handle => {
  return (response) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  };
};

it('calls the owner once the platform has told its URL', async () => {
  const { counts, link } = await startTwo();
  for (let n = 0; n < 3; n++) expect(await renew(link)).toEqual(DONE);
  expect(counts()).toEqual([1, 2]);
});

it('sends the key to no other server', async () => {
  const { link, owner } = await startTwo();
  const seen: unknown[] = [];
  owner.handle = (response, request) => {
    seen.push(request.headers.authorization, request.headers.host);
    owner.answer(response);
  };
  await renew(link);
  await renew(link);
  expect(seen).toEqual(['Bearer mr_k', new URL(owner.url).host]);
});

it.each<[string, Handle]>([
  ['refuses the key', refuse(401)],
  ['knows no such path', refuse(404)],
  ['calls the request invalid', refuse(422)],
  ['redirects', (response) => response.writeHead(302, { location: 'http://127.0.0.1:9' }).end()],
  ['is stopping', refuse(503)],
  ['is another server', (response) => response.end('<html>')],
  [
    'cuts the answer',
    (response) => void response.writeHead(200).write('{', () => response.destroy()),
  ],
  ['breaks the connection', (response) => response.destroy()],
])('repeats a call at the configured URL if the owner %s', async (_name, handle) => {
  const { counts, link, owner } = await startTwo();
  owner.handle = handle;
  await renew(link);
  expect(await renew(link)).toEqual(DONE);
  expect(counts()).toEqual([2, 1]);
  // Although the platform names the owner again with each answer.
  for (let n = 0; n < 5; n++) expect(await renew(link)).toEqual(DONE);
  expect(counts()).toEqual([7, 1]);
});

it('repeats a call at the configured URL if the owner cannot be reached', async () => {
  const { configured, link, owner } = await startTwo();
  await renew(link);
  await owner.stop();
  expect(await renew(link)).toEqual(DONE);
  expect(configured.calls).toBe(2);
});

it('calls a failed owner again after a pause', async () => {
  const { link, owner } = await startTwo();
  owner.handle = refuse(503);
  await renew(link);
  await renew(link);
  expect(owner.calls).toBe(1);
  owner.handle = (response) => owner.answer(response);
  const call = async () => {
    await renew(link);
    return owner.calls;
  };
  await expect.poll(call, { timeout: 30_000 }).toBeGreaterThan(2);
});

it('follows the next owner, which the last one names', async () => {
  const { counts, link, owner } = await startTwo();
  const next = await Node.start();
  await renew(link);
  owner.owner = next;
  for (let n = 0; n < 3; n++) await renew(link);
  expect([...counts(), next.calls]).toEqual([1, 1, 2]);
});

it('makes each call once if two nodes name each other', async () => {
  const { configured, counts, link, owner } = await startTwo();
  owner.owner = configured;
  for (let n = 0; n < 6; n++) await renew(link);
  expect(counts()).toEqual([3, 3]);
});

it('lets a call at the configured URL end, and does not go back to what its answer says', async () => {
  const { configured, link, owner } = await startTwo();
  const stale = await Node.start();
  const held = Promise.withResolvers<ServerResponse>();
  configured.handle = (response) => held.resolve(response);
  const waiting = renew(link);
  const response = await held.promise;
  configured.handle = (answered) => configured.answer(answered);
  await renew(link);
  configured.owner = stale;
  configured.answer(response);
  expect(await waiting).toEqual(DONE);
  await renew(link);
  expect([owner.calls, stale.calls]).toEqual([1, 0]);
});

it.each(['unknown_worker', 'stale_incarnation'])('passes %s of the owner on', async (code) => {
  const { counts, link, owner } = await startTwo();
  owner.handle = refuse(409, { code });
  await renew(link);
  await expect(renew(link)).rejects.toMatchObject({ code });
  expect(counts()).toEqual([1, 1]);
});

it('leaves an owner that is silent beyond the wait of a call, and repeats its other calls', async () => {
  const { configured, link, owner } = await startTwo();
  await renew(link);
  owner.handle = () => {};
  const giveUp = new AbortController();
  const [renewed, asked] = [renew(link, giveUp.signal), renew(link)];
  await expect.poll(() => owner.calls).toBe(2);
  giveUp.abort();
  await expect(renewed).rejects.toMatchObject({ code: 'unavailable' });
  expect(await asked).toEqual(DONE);
  expect(configured.calls).toBe(2);
});

it('stays at an owner if the worker gives a call up within its wait', async () => {
  const { configured, link, owner } = await startTwo();
  await renew(link);
  owner.handle = () => {};
  const giveUp = new AbortController();
  const renewed = link.renew({ ...identity, waitMs: 60_000, leases: [] }, giveUp.signal);
  await expect.poll(() => owner.calls).toBe(1);
  giveUp.abort();
  await expect(renewed).rejects.toMatchObject({ code: 'unavailable' });
  owner.handle = (response) => owner.answer(response);
  await renew(link);
  expect([configured.calls, owner.calls]).toEqual([1, 2]);
});

it('checks the certificate of the owner, and never sends the key without encryption', async () => {
  const [configured, plain, owner] = [
    await Node.start({ isSecure: true }),
    await Node.start(),
    await Node.start({ isSecure: true }),
  ];
  const open = (url: string, tls = {}) => {
    const link = createHttpLink({
      url,
      endpointId: 'echo',
      key: 'mr_k',
      log: silentLog,
      tls: () => tls,
    });
    onTestFinished(() => link.close());
    return link;
  };
  const trusting = open(configured.url, { ca: CERTIFICATE });
  configured.owner = plain;
  await renew(trusting);
  await renew(trusting);
  expect([configured.calls, plain.calls]).toEqual([2, 0]);
  configured.owner = owner;
  await renew(trusting);
  await renew(trusting);
  expect([configured.calls, owner.calls]).toEqual([3, 1]);
  // An authority of its own: the owner is not trusted, and gets no call.
  plain.owner = owner;
  const other = open(plain.url);
  for (let n = 0; n < 3; n++) await renew(other);
  expect([plain.calls, owner.calls]).toEqual([3, 1]);
});
