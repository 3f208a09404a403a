// A program against a client that @hey-api/openapi-ts made from the OpenAPI document. The test copies it
// beside the generated client, compiles it and runs it.
import {
  createEndpoint,
  createPod,
  createTemplate,
  getEndpoint,
  getJobStatus,
  listEndpoints,
  passOnPost,
  runJob,
  runJobSync,
} from './generated';
import { client } from './generated/client.gen';

client.setConfig({
  ...(process.env['API_URL'] !== undefined && { baseUrl: process.env['API_URL'] }),
  auth: () => process.env['API_KEY'],
});

async function main(): Promise<void> {
  const path = { endpoint: 'work' };
  const input = { n: 3, ms: 0, nested: { list: [1, 'two', null] } };
  const throwOnError = true;
  const { data: job } = await runJob({
    ...{ path, throwOnError },
    body: { input, policy: { priority: 1 }, idempotencyKey: 'of hey-api' },
  });
  const { data: ran } = await runJobSync({
    ...{ path, throwOnError },
    query: { wait: 30_000 },
    body: { input },
  });
  const { data: status } = await getJobStatus({
    path: { ...path, job: job.id },
    throwOnError,
  });
  const { data: template } = await createTemplate({
    body: { name: 'by hey-api', image: 'none', args: 'true' },
    throwOnError,
  });
  const { data: made } = await createEndpoint({
    body: { name: 'by hey-api', templateId: template.id, workersMax: 0 },
    throwOnError,
  });
  const { data: page } = await listEndpoints({ query: { limit: 1 }, throwOnError });
  const missing = await getEndpoint({ path: { endpoint: 'ep_none' } });
  console.log(
    JSON.stringify({
      ran: ran.status,
      isFound: status.id === job.id,
      disk: template.disk,
      isListed: page.endpoints.some(({ id }) => id === made.id),
      hasNextPage: typeof page.cursor === 'string',
      missing: missing.error?.code,
    }),
  );
}

/** Compiled and never called: what has to be accepted, and what must not be. */
export async function compile(): Promise<void> {
  const path = { endpoint: 'work' };
  // A pod needs no more than this: everything else has a default.
  const body = {
    ...{ name: 'pod', image: 'none' },
    cpu: { id: 'standard', vcpuCount: 2, memory: 1 },
  };
  const { data: pod } = await createPod({ body, throwOnError: true });
  const util: number | undefined = pod.runtime?.cpu?.util;
  console.log(util, pod.status === 'RUNNING', pod.dataCenterId?.length);
  // @ts-expect-error: the status of a pod is one of a few.
  console.log(pod.status === 'ASLEEP');
  // @ts-expect-error: a job without input.
  await runJob({ path, body: {} });
  // @ts-expect-error: a priority is a number.
  await runJob({ path, body: { input: {}, policy: { priority: '1' } } });
  await passOnPost({ path: { endpoint: 'web', path: 'v1/chat' }, body: { text: 'a' } });
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
