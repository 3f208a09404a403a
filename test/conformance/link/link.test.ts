// Runs the link suite on every carrier, and on the queue without a carrier.
import { silentLog } from '../../../src/base/log.ts';
import { platformChecks } from '../../../src/conformance/platform/platform-checks.ts';
import { createGrpcLink } from '../../../src/transport/grpc/grpc-link.ts';
import { createHttpLink } from '../../../src/transport/http-link.ts';
import {
  type CarrierPort,
  issueWorkerKey,
  openGrpcPort,
  openHttpPort,
} from '../../support/network/link-ports.ts';
import { type Carrier, ENDPOINT, type Platform } from '../../support/queue-platform.ts';
import { describeLink } from './link.ts';
import { describeRules, queueChecks } from './link-rules.ts';

describeLink('the queue itself', openQueue);
describeRules('the queue itself', openQueue, queueChecks);

describeLink('HTTP', openHttp);
describeRules('HTTP', openHttp, platformChecks);

describeLink('gRPC', openGrpc);
describeRules('gRPC', openGrpc, platformChecks);

async function openQueue(platform: Platform): Promise<Carrier> {
  return { link: (endpointId) => platform.queue.link(endpointId), close: async () => {} };
}

function openHttp(platform: Platform): Promise<Carrier> {
  return open(platform, openHttpPort, createHttpLink);
}

function openGrpc(platform: Platform): Promise<Carrier> {
  return open(platform, openGrpcPort, createGrpcLink);
}

/** Starts a real server on a loopback port, and creates a link to it with a worker key. */
async function open(
  platform: Platform,
  openPort: (platform: Platform) => Promise<CarrierPort>,
  createLink: typeof createHttpLink | typeof createGrpcLink,
): Promise<Carrier> {
  const { key } = await issueWorkerKey(platform);
  const port = await openPort(platform);
  const target = { url: port.url, endpointId: ENDPOINT, log: silentLog };
  const link = createLink({ ...target, key });
  const wrongKeyLink = createLink({ ...target, key: `mr_${'x'.repeat(43)}` });
  return {
    link: () => link,
    wrongKeyLink,
    async close() {
      await link.close();
      await wrongKeyLink.close();
      await port.close();
    },
  };
}
