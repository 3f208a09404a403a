// Opens the platform's ports for the link suite. It does not use `createPlatformServer`, because the suite
// controls the clock and restarts the queue on the same store.
import { createGrpcServer } from '../../../src/api/grpc/server.ts';
import { createServer } from '../../../src/api/server.ts';
import { silentLog } from '../../../src/base/log.ts';
import { createClient } from '../../../src/client.ts';
import { Endpoints } from '../../../src/control/endpoints/endpoints.ts';
import { Keys } from '../../../src/control/keys/keys.ts';
import { ENDPOINT, type Platform } from '../queue-platform.ts';

export interface CarrierPort {
  url: string;
  close(): Promise<void>;
}

const PLACE = { host: '127.0.0.1', port: 0 };

export function issueWorkerKey(platform: Platform) {
  return issueKey(platform, `worker:${ENDPOINT}`);
}

async function issueKey({ clock, store }: Platform, scope: string) {
  const keys = await Keys.open({ store, clock });
  return keys.issue({ name: scope, scopes: [scope] });
}

/** Opens an HTTP port, and creates a client of its job API. */
export async function openClient(platform: Platform) {
  const { key } = await issueKey(platform, 'admin');
  const { close, url } = await openHttpPort(platform);
  return { client: createClient({ url, endpoint: ENDPOINT, key }), close };
}

/** Routes for Millrace workers and for RunPod workers. */
export async function openHttpPort({ clock, queue, store }: Platform): Promise<CarrierPort> {
  const keys = await Keys.open({ store, clock });
  const endpoints = await Endpoints.open({ store, clock });
  const how = { ...PLACE, access: 'keys', version: '0.0.0' } as const;
  const server = createServer({ queue, keys, endpoints, log: silentLog, clock, ...how });
  const { url } = await server.start();
  return { url, close: () => server.close() };
}

export async function openGrpcPort({ clock, queue, store }: Platform): Promise<CarrierPort> {
  const keys = await Keys.open({ store, clock });
  const endpoints = await Endpoints.open({ store, clock });
  const server = createGrpcServer({
    ...{ ...PLACE, keys, endpoints, clock, log: silentLog },
    linkTo: (id, holder) => (id === ENDPOINT ? queue.link(id, holder?.podId) : undefined),
    noteCrash: () => {},
    isClosing: () => queue.isClosing,
  });
  const { url } = await server.start();
  return { url, close: () => server.close() };
}
