// Runs the link suite on every carrier, and on the queue without a carrier.
import { silentLog } from '../../../src/base/log.ts';
import { createGrpcLink } from '../../../src/transport/grpc/grpc-link.ts';
import { createHttpLink } from '../../../src/transport/http/http-link.ts';
import {
  type CarrierPort,
  issueWorkerKey,
  openGrpcPort,
  openHttpPort,
} from '../../support/network/link-ports.ts';
import type { Carrier, Platform } from '../../support/queue-platform.ts';
import { ENDPOINT } from '../../support/queue-platform.ts';
import { describeLink } from './link.ts';

describeLink('the queue itself', async (platform) => ({
  link: (endpointId) => platform.queue.link(endpointId),
  close: async () => {},
}));

describeLink('HTTP', (platform) => open(platform, openHttpPort, createHttpLink));

describeLink('gRPC', (platform) => open(platform, openGrpcPort, createGrpcLink));

/** Starts a real server on a loopback port, and creates a link to it with a worker key. */
async function open(
  platform: Platform,
  openPort: (platform: Platform) => Promise<CarrierPort>,
  createLink: typeof createHttpLink | typeof createGrpcLink,
): Promise<Carrier> {
  const { key } = await issueWorkerKey(platform);
  const port = await openPort(platform);
  const link = createLink({ url: port.url, endpointId: ENDPOINT, key, log: silentLog });
  return {
    link: () => link,
    async close() {
      await link.close();
      await port.close();
    },
  };
}
