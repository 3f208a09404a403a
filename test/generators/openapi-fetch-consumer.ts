// A program against a client that openapi-typescript and openapi-fetch made from the OpenAPI document. The
// test copies it beside the generated types, compiles it and runs it.
import createClient from 'openapi-fetch';
import type { components, paths } from './schema';

const client = createClient<paths>({
  baseUrl: process.env['API_URL'] ?? '',
  headers: { Authorization: `Bearer ${process.env['API_KEY']}` },
});

/** What a call that has to succeed answers. */
function expectData<T>({ data, error }: { data?: T; error?: components['schemas']['Problem'] }): T {
  if (data === undefined) throw new Error(`${error?.code}: ${error?.detail}`);
  return data;
}

async function main(): Promise<void> {
  const endpoint = 'work';
  const input = { n: 3, ms: 0, nested: { list: [1, 'two', null] } };
  const job = expectData(
    await client.POST('/v2/{endpoint}/run', {
      params: { path: { endpoint } },
      body: { input, policy: { priority: 1 }, idempotencyKey: 'of openapi-fetch' },
    }),
  );
  const ran = expectData(
    await client.POST('/v2/{endpoint}/runsync', {
      params: { path: { endpoint }, query: { wait: 30_000 } },
      body: { input },
    }),
  );
  const status = expectData(
    await client.GET('/v2/{endpoint}/status/{job}', {
      params: { path: { endpoint, job: job.id } },
    }),
  );
  const template = expectData(
    await client.POST('/v1/templates', {
      body: { name: 'by openapi-fetch', image: 'none', args: 'true' },
    }),
  );
  const made = expectData(
    await client.POST('/v1/endpoints', {
      body: { name: 'by openapi-fetch', templateId: template.id, workersMax: 0 },
    }),
  );
  const { endpoints, cursor } = expectData(
    await client.GET('/v1/endpoints', { params: { query: { limit: 1 } } }),
  );
  const missing = await client.GET('/v1/endpoints/{endpoint}', {
    params: { path: { endpoint: 'ep_none' } },
  });
  console.log(
    JSON.stringify({
      ran: ran.status,
      isFound: status.id === job.id,
      disk: template.disk,
      isListed: endpoints.some(({ id }) => id === made.id),
      hasNextPage: typeof cursor === 'string',
      missing: missing.error?.code,
    }),
  );
}

/** Compiled and never called: what has to be accepted, and what must not be. */
export async function compile(): Promise<void> {
  const params = { path: { endpoint: 'work' } };
  // A pod needs no more than this: everything else has a default.
  const body = {
    ...{ name: 'pod', image: 'none' },
    cpu: { id: 'standard', vcpuCount: 2, memory: 1 },
  };
  const pod = expectData(await client.POST('/v2/pods', { body }));
  const util: number | undefined = pod.runtime?.cpu?.util;
  console.log(util, pod.status === 'RUNNING', pod.dataCenterId?.length);
  // @ts-expect-error: the status of a pod is one of a few.
  console.log(pod.status === 'ASLEEP');
  // @ts-expect-error: a job without input.
  await client.POST('/v2/{endpoint}/run', { params, body: {} });
  const wrong = { input: {}, policy: { priority: '1' } };
  // @ts-expect-error: a priority is a number.
  await client.POST('/v2/{endpoint}/run', { params, body: wrong });
  const lb = { path: { endpoint: 'web', path: 'v1/chat' } };
  await client.POST('/lb/{endpoint}/{path}', { params: lb, body: { text: 'a' } });
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
