// An npm registry that has one package, from its tarball, and sends npm to the real registry for every other one.
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';

export interface RegistryOptions {
  /** The package's package.json. */
  manifest: { name: string; version: string };
  /** Path of the tarball. */
  tarball: string;
  /** URL of the registry for other packages. */
  upstream: string;
}

export class PackageRegistry {
  readonly #options: RegistryOptions;
  readonly #tarball: Buffer;
  readonly #server: Server;

  private constructor(options: RegistryOptions) {
    this.#options = options;
    this.#tarball = readFileSync(options.tarball);
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  /** Starts on a free port of 127.0.0.1. */
  static async start(options: RegistryOptions): Promise<PackageRegistry> {
    const registry = new PackageRegistry(options);
    registry.#server.listen(0, '127.0.0.1');
    await once(registry.#server, 'listening');
    return registry;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it has no port');
    return `http://127.0.0.1:${address.port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #answer({ url = '' }: IncomingMessage, response: ServerResponse): void {
    const { manifest, upstream } = this.#options;
    const { name, version } = manifest;
    const tarball = `/${name}/-/${name}-${version}.tgz`;
    if (url === tarball) return void response.end(this.#tarball);
    if (url !== `/${name}`) {
      response.writeHead(302, {
        location: new URL(url.slice(1), `${upstream.replace(/\/$/, '')}/`).href,
      });
      return void response.end();
    }
    const integrity = `sha512-${hash('sha512', this.#tarball, 'base64')}`;
    const versions = {
      [version]: { ...manifest, dist: { tarball: `${this.url}${tarball}`, integrity } },
    };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ name, versions, 'dist-tags': { latest: version } }));
  }
}
