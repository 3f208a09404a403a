// The suite on every carrier there is; the first is none: the queue itself.
import { createGrpcServer } from '../../../src/api/grpc/server.ts';
import { createServer } from '../../../src/api/server.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Endpoints } from '../../../src/control/endpoints/endpoints.ts';
import { Keys } from '../../../src/control/keys/keys.ts';
import { createGrpcLink } from '../../../src/transport/grpc/grpc-link.ts';
import { createHttpLink } from '../../../src/transport/http/http-link.ts';
import { type Carrier, ENDPOINT, type Platform } from '../platform.ts';
import { describeLink } from './link.ts';

describeLink('the queue itself', async (platform) => ({
  link: (endpointId) => platform.queue.link(endpointId),
  close: async () => {},
}));

describeLink('HTTP', openHttp);

describeLink('gRPC', openGrpc);

/** A real server on a loopback port and the worker's client for it, with a worker key. */
async function openHttp({ clock, queue, store }: Platform): Promise<Carrier> {
  const keys = await Keys.open({ store, clock });
  const { key } = await keys.issue({ name: 'worker', scopes: [`worker:${ENDPOINT}`] });
  const server = createServer({
    queue,
    keys,
    endpoints: await Endpoints.open({ store, clock }),
    log: silentLog,
    clock,
    host: '127.0.0.1',
    port: 0,
    access: 'keys',
    version: '0.0.0',
  });
  const { url } = await server.start();
  const link = createHttpLink({ url, endpointId: ENDPOINT, key, log: silentLog });
  return {
    link: () => link,
    async close() {
      await link.close();
      await server.close();
    },
  };
}

/** As openHttp, over one stream. */
async function openGrpc({ clock, queue, store }: Platform): Promise<Carrier> {
  const keys = await Keys.open({ store, clock });
  const { key } = await keys.issue({ name: 'worker', scopes: [`worker:${ENDPOINT}`] });
  const server = createGrpcServer({
    keys,
    endpoints: await Endpoints.open({ store, clock }),
    clock,
    log: silentLog,
    host: '127.0.0.1',
    port: 0,
    linkTo: (endpointId) => (endpointId === ENDPOINT ? queue.link(endpointId) : undefined),
    noteCrash: () => {},
    isClosing: () => queue.isClosing,
  });
  const { url } = await server.start();
  const link = createGrpcLink({ url, endpointId: ENDPOINT, key, log: silentLog });
  return {
    link: () => link,
    async close() {
      await link.close();
      await server.close();
    },
  };
}
