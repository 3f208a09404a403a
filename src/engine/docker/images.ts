// Pulls missing images, with the credentials of their registry.
import { z } from 'zod';
import type { Log } from '../../base/log.ts';
import { readDocuments } from '../answers.ts';
import { EngineError, type RegistryLogin } from '../engine.ts';
import { type DockerClient, DockerError, judgePull } from './docker-client.ts';

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
