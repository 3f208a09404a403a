// An image registry with one image and one login: as much of the protocol as an engine needs to
// pull.
import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';

const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';
const CONFIG = 'application/vnd.docker.container.image.v1+json';
const LAYER = 'application/vnd.docker.image.rootfs.diff.tar.gzip';
const UNKNOWN = '{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}';
const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch;

export class ImageRegistry {
  readonly #server: Server;
  readonly #blobs: ReadonlyMap<string, Buffer>;
  readonly #manifest: Buffer;
  readonly #login: string;
  /** Logins that the registry received. */
  readonly shown: string[] = [];

  private constructor(layer: Buffer, login: string) {
    const config = describeImage(layer);
    const zipped = gzipSync(layer);
    this.#login = login;
    this.#blobs = new Map([config, zipped].map((blob) => [digest(blob), blob]));
    this.#manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: MANIFEST,
        config: describeBlob(CONFIG, config),
        layers: [describeBlob(LAYER, zipped)],
      }),
    );
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  /** Starts on a free port of 127.0.0.1. `login`: `name:password`. */
  static async start(login: string): Promise<ImageRegistry> {
    const registry = new ImageRegistry(await packLayer(), login);
    registry.#server.listen(0, '127.0.0.1');
    await once(registry.#server, 'listening');
    return registry;
  }

  /** Host and port, as in an image's name. */
  get host(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it has no port');
    return `127.0.0.1:${address.port}`;
  }

  /** Name of the registry's image. */
  get image(): string {
    return `${this.host}/things/small:1`;
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  #answer({ headers, url = '' }: IncomingMessage, response: ServerResponse): void {
    const shown = Buffer.from((headers.authorization ?? '').replace('Basic ', ''), 'base64');
    if (shown.length > 0) this.shown.push(shown.toString());
    if (shown.toString() !== this.#login) {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="images"' }).end();
    } else if (url === '/v2/') {
      response.writeHead(200, { 'docker-distribution-api-version': 'registry/2.0' }).end('{}');
    } else if (url === '/v2/things/small/manifests/1') {
      this.#send(response, { type: MANIFEST, blob: this.#manifest });
    } else {
      const blob = this.#blobs.get(url.split('/').at(-1) ?? '');
      if (blob) this.#send(response, { type: 'application/octet-stream', blob });
      else response.writeHead(404).end(UNKNOWN);
    }
  }

  #send(response: ServerResponse, { blob, type }: { blob: Buffer; type: string }): void {
    const headers = { 'content-type': type, 'content-length': blob.length };
    response.writeHead(200, { ...headers, 'docker-content-digest': digest(blob) }).end(blob);
  }
}

function describeImage(layer: Buffer): Buffer {
  return Buffer.from(
    JSON.stringify({
      architecture: ARCHITECTURE,
      os: 'linux',
      config: { Cmd: ['/nothing'] },
      rootfs: { type: 'layers', diff_ids: [digest(layer)] },
    }),
  );
}

function describeBlob(mediaType: string, blob: Buffer) {
  return { mediaType, size: blob.length, digest: digest(blob) };
}

function digest(blob: Buffer): string {
  return `sha256:${hash('sha256', blob, 'hex')}`;
}

async function packLayer(): Promise<Buffer> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-layer-'));
  try {
    await writeFile(join(folder, 'nothing'), `${folder}\n`);
    const pack = ['-C', folder, '-c', 'nothing'];
    const { stdout } = await promisify(execFile)('tar', pack, { encoding: 'buffer' });
    return stdout;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
