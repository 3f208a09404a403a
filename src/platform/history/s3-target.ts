// Writes files of history to a bucket of S3 or of a server with the same API: one signed request for each (AWS Signature
// Version 4), so that the platform needs no package of Amazon.
import { createHash, createHmac } from 'node:crypto';
import { OutgoingAgents } from '../../base/net/outgoing-agents.ts';
import type { ChooseProxy } from '../../base/net/outgoing-proxy.ts';
import { loadUndici } from '../../base/net/undici.ts';
import type { HistoryTarget } from '../../queue/history/history-files.ts';

const MAX_ANSWER_BYTES = 16_384;
const CONTENT_TYPE = 'application/gzip';
const ALGORITHM = 'AWS4-HMAC-SHA256';

export interface S3TargetOptions {
  /** http or https, without user, query and bucket. */
  url: URL;
  region: string;
  bucket: string;
  /** Begins each key; empty, or with a slash at its end. */
  prefix: string;
  accessId: string;
  accessSecret: string;
  chooseProxy: ChooseProxy;
}

export class S3Target implements HistoryTarget {
  // Private, so that a log of this object shows no secret.
  readonly #options: S3TargetOptions;
  readonly #agents: OutgoingAgents;

  constructor(options: S3TargetOptions) {
    this.#options = options;
    this.#agents = new OutgoingAgents({ chooseProxy: options.chooseProxy });
  }

  async put(name: string, content: Uint8Array, signal: AbortSignal): Promise<void> {
    const { bucket, prefix, url } = this.#options;
    const key = `${prefix}${name}`;
    const path = `${url.pathname.replace(/\/$/, '')}/${[bucket, ...key.split('/')].map(encode).join('/')}`;
    const target = new URL(url);
    target.pathname = path;
    const answer = await loadUndici().request(target, {
      method: 'PUT',
      dispatcher: await this.#agents.open(target),
      signal,
      headers: signPut(this.#options, { host: url.host, path, content, now: Date.now() }),
      body: content,
    });
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of answer.body) {
      pieces.push(piece);
      bytes += piece.length;
      if (bytes > MAX_ANSWER_BYTES) break;
    }
    if (answer.statusCode === 200) return;
    const [, code = ''] = /<Code>(\w{1,64})<\/Code>/.exec(Buffer.concat(pieces).toString()) ?? [];
    throw new Error(`S3 answered ${answer.statusCode} ${code} to the upload of ${key}`);
  }

  async close(): Promise<void> {
    await this.#agents.destroy();
  }
}

interface SignedPut {
  host: string;
  /** Encoded as S3 does. */
  path: string;
  content: Uint8Array;
  /** Real time, because the server compares it with its own clock. */
  now: number;
}

function signPut(
  { accessId, accessSecret, region }: S3TargetOptions,
  { content, host, now, path }: SignedPut,
): Record<string, string> {
  const time = new Date(now).toISOString().replaceAll(/[-:]|\.\d+/g, '');
  const scope = [time.slice(0, 8), region, 's3', 'aws4_request'];
  const headers = {
    'content-type': CONTENT_TYPE,
    host,
    'x-amz-content-sha256': hash(content),
    'x-amz-date': time,
  };
  const names = Object.keys(headers).join(';');
  const lines = Object.entries(headers).map(([name, value]) => `${name}:${value}\n`);
  const request = ['PUT', path, '', lines.join(''), names, headers['x-amz-content-sha256']];
  const text = [ALGORITHM, time, scope.join('/'), hash(request.join('\n'))].join('\n');
  let key: string | Buffer = `AWS4${accessSecret}`;
  for (const part of scope) key = createHmac('sha256', key).update(part).digest();
  const signature = createHmac('sha256', key).update(text).digest('hex');
  const credential = `${accessId}/${scope.join('/')}`;
  const authorization = `${ALGORITHM} Credential=${credential}, SignedHeaders=${names}, Signature=${signature}`;
  return { ...headers, authorization };
}

function hash(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex');
}

/** A segment of a path. */
function encode(segment: string): string {
  const percent = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(segment).replaceAll(/[!'()*]/g, percent);
}
