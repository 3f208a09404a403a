// Keys that another node has created a moment ago, on the gRPC port.
import { expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../../src/api/grpc/server.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { Keys } from '../../../../src/control/keys/keys.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { createGrpcLink } from '../../../../src/transport/grpc/grpc-link.ts';
import { ENDPOINT, startPlatform } from '../../../support/api/platform.ts';

const HELLO = {
  ...{ workerId: 'w1', incarnation: 1, protocol: 1, version: '1', slots: 1 },
  ...{ devices: [], outbox: [] },
};

/** A port whose keys are copies, which a look-up reads again. */
async function start() {
  const { endpoints, queue } = await startPlatform();
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const leader = await Keys.open({ store, clock: systemClock });
  const keys = await Keys.open({ store, clock: systemClock });
  const looks = { count: 0 };
  const server = createGrpcServer({
    ...{ keys, endpoints, clock: systemClock, log: silentLog, host: '127.0.0.1', port: 0 },
    linkTo: (id) => queue.link(id),
    noteCrash: () => {},
    isClosing: () => queue.isClosing,
    lookUp: async () => {
      looks.count += 1;
      await keys.reload();
    },
  });
  const { url } = await server.start();
  onTestFinished(() => server.close());
  const sayHello = async (key: string) => {
    const link = createGrpcLink({ url, endpointId: ENDPOINT, key, log: silentLog });
    try {
      return await link.hello(HELLO);
    } finally {
      await link.close();
    }
  };
  return { leader, looks, sayHello };
}

it('looks up a key that it does not know, once', async () => {
  const { leader, looks, sayHello } = await start();
  const { key } = await leader.issue({ name: 'worker', scopes: [`worker:${ENDPOINT}`] });
  expect(await sayHello(key)).toMatchObject({ protocol: 1 });
  expect(await sayHello(key)).toMatchObject({ protocol: 1 });
  expect(looks.count).toBe(1);
});

it('refuses a key that nobody has, after a look', async () => {
  const { looks, sayHello } = await start();
  await expect(sayHello('mr_nobody')).rejects.toMatchObject({ code: 'unauthorized' });
  expect(looks.count).toBe(1);
});
