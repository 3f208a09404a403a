// A small S3 server on 127.0.0.1: objects and multipart uploads in memory, path-style URLs. It checks the signature
// (AWS Signature Version 4) of each request itself, in its headers or in a presigned URL.
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export interface StoredObject {
  body: Buffer;
  contentType: string | undefined;
}

/** Answers a request instead of the server; false: the server answers. */
export type Intercept = (operation: string, response: ServerResponse) => boolean | Promise<boolean>;

export const S3_KEYS = { accessId: 'AKIATESTACCESSID', accessSecret: 'test/secret+of=the:bucket' };

export class S3Server implements AsyncDisposable {
  readonly objects = new Map<string, StoredObject>();
  /** Parts by upload ID; a completed or aborted upload is gone. */
  readonly uploads = new Map<string, Map<number, Buffer>>();
  /** Operations in their order, such as `PutObject`. */
  readonly operations: string[] = [];
  /** Bodies that are in memory at the moment, and the most of them at a time. */
  mostParts = 0;
  intercept: Intercept = () => false;
  readonly #server = createServer((request, response) => {
    this.#serve(request, response).catch((error: unknown) => {
      const { code, status } =
        error instanceof Refusal ? error : { code: 'InternalError', status: 500 };
      answerError(response, status, code);
    });
  });
  readonly #buckets: readonly string[];
  #running = 0;

  private constructor(buckets: readonly string[]) {
    this.#buckets = buckets;
  }

  static async start(...buckets: string[]): Promise<S3Server> {
    const server = new S3Server(buckets);
    server.#server.listen(0, '127.0.0.1');
    await once(server.#server, 'listening');
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '', this.url);
    const operation = nameOperation(request.method ?? '', url.searchParams);
    this.operations.push(operation);
    this.#running += 1;
    if (operation === 'UploadPart') this.mostParts = Math.max(this.mostParts, this.#running);
    try {
      if (await this.intercept(operation, response)) return;
      const body = await buffer(request);
      checkSignature(request, url, body);
      const [, bucket = '', ...rest] = url.pathname.split('/');
      if (!this.#buckets.includes(bucket)) throw new Refusal(404, 'NoSuchBucket');
      const name = `${bucket}/${decodeURIComponent(rest.join('/'))}`;
      this.#answer({ operation, name, body, params: url.searchParams, request, response });
    } finally {
      this.#running -= 1;
    }
  }

  #answer({ body, name, operation, params, request, response }: Asked): void {
    const uploadId = params.get('uploadId') ?? '';
    const contentType = request.headers['content-type'];
    switch (operation) {
      case 'PutObject':
        this.objects.set(name, { body, contentType });
        response.writeHead(200, { etag: etagOf(body) }).end();
        return;
      case 'CreateMultipartUpload': {
        const id = `upload-${this.operations.length}-${contentType}`;
        this.uploads.set(id, new Map());
        answerXml(
          response,
          `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`,
        );
        return;
      }
      case 'UploadPart':
        this.#findUpload(uploadId).set(Number(params.get('partNumber')), body);
        response.writeHead(200, { etag: etagOf(body) }).end();
        return;
      case 'CompleteMultipartUpload': {
        const parts = this.#findUpload(uploadId);
        const named = [...body.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber>/g)];
        const bodies = named.map(([, number]) => parts.get(Number(number)) ?? Buffer.alloc(0));
        const tags = [...body.toString().matchAll(/<ETag>(.*?)<\/ETag>/g)];
        const isWhole = bodies.every(
          (part, index) => `"${bareTag(tags[index]?.[1])}"` === etagOf(part),
        );
        if (!isWhole || bodies.length === 0) throw new Refusal(400, 'InvalidPart');
        this.objects.set(name, {
          body: Buffer.concat(bodies),
          contentType: uploadId.split('-').slice(2).join('-'),
        });
        this.uploads.delete(uploadId);
        answerXml(response, '<CompleteMultipartUploadResult></CompleteMultipartUploadResult>');
        return;
      }
      case 'AbortMultipartUpload':
        this.uploads.delete(uploadId);
        response.writeHead(204).end();
        return;
      case 'GetObject': {
        const found = this.objects.get(name);
        if (!found) throw new Refusal(404, 'NoSuchKey');
        response.writeHead(200, { 'content-type': found.contentType }).end(found.body);
        return;
      }
      default:
        throw new Refusal(501, 'NotImplemented');
    }
  }

  #findUpload(id: string): Map<number, Buffer> {
    const upload = this.uploads.get(id);
    if (!upload) throw new Refusal(404, 'NoSuchUpload');
    return upload;
  }
}

interface Asked {
  operation: string;
  name: string;
  body: Buffer;
  params: URLSearchParams;
  request: IncomingMessage;
  response: ServerResponse;
}

class Refusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string) {
    super(code);
    this.status = status;
    this.code = code;
  }
}

function nameOperation(method: string, params: URLSearchParams): string {
  const isPart = params.has('uploadId');
  if (method === 'PUT') return isPart ? 'UploadPart' : 'PutObject';
  if (method === 'POST') return isPart ? 'CompleteMultipartUpload' : 'CreateMultipartUpload';
  if (method === 'DELETE') return isPart ? 'AbortMultipartUpload' : 'DeleteObject';
  return method === 'GET' ? 'GetObject' : method;
}

const ALGORITHM = 'AWS4-HMAC-SHA256';

/** @throws Refusal, as the specification of Signature Version 4 says */
function checkSignature(request: IncomingMessage, url: URL, body: Buffer): void {
  const isPresigned = url.searchParams.has('X-Amz-Signature');
  const claim = isPresigned ? readPresigned(url) : readHeaders(request);
  const [accessId = '', date = '', region = '', service = '', end = ''] =
    claim.credential.split('/');
  if (accessId !== S3_KEYS.accessId) throw new Refusal(403, 'InvalidAccessKeyId');
  if (service !== 's3' || end !== 'aws4_request') throw new Refusal(403, 'SignatureDoesNotMatch');
  const stated = claim.contentHash;
  if (stated !== 'UNSIGNED-PAYLOAD' && stated !== sha256(body)) {
    throw new Refusal(400, 'XAmzContentSHA256Mismatch');
  }
  const query = [...url.searchParams]
    .filter(([name]) => name !== 'X-Amz-Signature')
    .map(([name, value]) => `${encode(name)}=${encode(value)}`)
    .toSorted();
  const headers = claim.signedHeaders.map(
    (name) => `${name}:${String(request.headers[name]).trim().replaceAll(/\s+/g, ' ')}\n`,
  );
  const path = url.pathname.split('/').map((segment) => encode(decodeURIComponent(segment)));
  const canonical = [
    ...[request.method, path.join('/'), query.join('&'), headers.join('')],
    ...[claim.signedHeaders.join(';'), stated],
  ].join('\n');
  const scope = [date, region, service, end].join('/');
  const text = [ALGORITHM, claim.time, scope, sha256(canonical)].join('\n');
  let key: Buffer = Buffer.from(`AWS4${S3_KEYS.accessSecret}`);
  for (const part of [date, region, service, end]) key = hmac(key, part);
  const expected = hmac(key, text);
  const given = Buffer.from(claim.signature, 'hex');
  const isEqual = given.length === expected.length && timingSafeEqual(given, expected);
  if (!isEqual) throw new Refusal(403, 'SignatureDoesNotMatch');
}

interface Claim {
  credential: string;
  signature: string;
  signedHeaders: string[];
  time: string;
  contentHash: string;
}

function readHeaders({ headers }: IncomingMessage): Claim {
  const found = /^AWS4-HMAC-SHA256 Credential=(\S+), ?SignedHeaders=(\S+), ?Signature=(\S+)$/.exec(
    headers.authorization ?? '',
  );
  const [, credential = '', signed = '', signature = ''] = found ?? [];
  if (!found) throw new Refusal(403, 'AccessDenied');
  const time = String(headers['x-amz-date']);
  if (Math.abs(Date.now() - parseTime(time)) > 900_000)
    throw new Refusal(403, 'RequestTimeTooSkewed');
  const contentHash = String(headers['x-amz-content-sha256']);
  return { credential, signature, signedHeaders: signed.split(';'), time, contentHash };
}

function readPresigned({ searchParams }: URL): Claim {
  const get = (name: string) => searchParams.get(`X-Amz-${name}`) ?? '';
  const time = get('Date');
  if (get('Algorithm') !== ALGORITHM) throw new Refusal(403, 'AccessDenied');
  if (Date.now() > parseTime(time) + Number(get('Expires')) * 1_000)
    throw new Refusal(403, 'AccessDenied');
  const signedHeaders = get('SignedHeaders').split(';');
  const own = { credential: get('Credential'), signature: get('Signature') };
  return { ...own, signedHeaders, time, contentHash: 'UNSIGNED-PAYLOAD' };
}

function parseTime(text: string): number {
  const parts = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(text)?.slice(1).map(Number) ?? [];
  const [year = 0, month = 0, day, hour, minute, second] = parts;
  return Date.UTC(year, month - 1, day, hour, minute, second);
}

function encode(text: string): string {
  const percent = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, percent);
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function etagOf(body: Buffer): string {
  return `"${createHash('md5').update(body).digest('hex')}"`;
}

function bareTag(tag: string | undefined): string | undefined {
  return tag?.replaceAll('&quot;', '').replaceAll('"', '');
}

function answerXml(response: ServerResponse, xml: string): void {
  response.writeHead(200, { 'content-type': 'application/xml' });
  response.end(`<?xml version="1.0" encoding="UTF-8"?>\n${xml}`);
}

/** As S3 answers: with what the request was signed with. */
export function answerError(response: ServerResponse, status: number, code: string): void {
  const { accessId } = S3_KEYS;
  const message = `${code} for ${accessId}`;
  response.writeHead(status, { 'content-type': 'application/xml' });
  response.end(
    `<?xml version="1.0"?><Error><Code>${code}</Code><Message>${message}</Message>` +
      `<AWSAccessKeyId>${accessId}</AWSAccessKeyId></Error>`,
  );
}
