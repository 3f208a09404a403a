// Which operations are tools, and under which names.
import { describe, expect, it } from 'vitest';
import {
  describeArguments,
  LEFT_OUT,
  LEFT_OUT_TAGS,
  readAnswer,
  TOOLS,
  type ToolCall,
} from '../../../../src/api/mcp/tools.ts';
import { PARAMETER } from '../../../../src/api/openapi/openapi.ts';
import { OPERATIONS } from '../../../../src/wire/operations/operations.ts';

const omitted = Object.values(LEFT_OUT).flat();
const offered = OPERATIONS.filter(
  ({ id, tag }) => !omitted.includes(id) && !LEFT_OUT_TAGS.includes(tag),
);

function find(name: string) {
  const tool = TOOLS.find((each) => each.name === name);
  if (!tool) throw new Error(`no tool ${name}`);
  return tool;
}

/** Runs a tool, and returns its only call. */
async function compose(name: string, given: Record<string, unknown>): Promise<ToolCall> {
  const calls: ToolCall[] = [];
  await find(name).run(given, async (call) => {
    calls.push(call);
    return { status: 200, text: '{}', isCut: false };
  });
  const [call] = calls;
  if (!call || calls.length > 1) throw new Error(`${calls.length} calls`);
  return call;
}

describe('the table of tools', () => {
  it('has each operation, or a reason why not', () => {
    const known = OPERATIONS.map(({ id }) => id);
    expect(omitted.filter((id) => !known.includes(id))).toEqual([]);
    expect(TOOLS.length).toBe(offered.length + 2);
    expect(new Set(TOOLS.map(({ name }) => name)).size).toBe(TOOLS.length);
  });

  it('has only operations with JSON, and none that ends in a stream', () => {
    const others = offered.filter(({ answers, body, isStream }) => {
      const types = Object.values(answers).flatMap(({ content = {} }) => Object.keys(content));
      return isStream || body?.mediaType || types.some((type) => type !== 'application/json');
    });
    expect(others.map(({ id }) => id)).toEqual([]);
  });

  it('takes each parameter as an argument of its own', () => {
    const lost = offered.filter(({ body, path, query = [] }, index) => {
      const { properties } = describeArguments(TOOLS[index + 2] ?? find('explain_wait'));
      const count = [...path.matchAll(PARAMETER)].length + query.length + (body ? 1 : 0);
      return Object.keys(Object(properties)).length !== count;
    });
    expect(lost.map(({ id }) => id)).toEqual([]);
  });

  it('calls nothing that changes something a tool that reads', () => {
    const reading = TOOLS.filter(({ isReading }) => isReading).map(({ name }) => name);
    expect(reading).toMatchInlineSnapshot(`
      [
        "explain_wait",
        "tail_log",
        "get_job_status",
        "get_pauses",
        "get_endpoint_health",
        "get_input_schema",
        "list_jobs",
        "get_job",
        "get_failed_job",
        "list_flows",
        "get_flow",
        "list_batches",
        "get_batch",
        "list_pods",
        "get_pod",
        "list_endpoints",
        "get_endpoint",
        "list_templates",
        "get_template",
        "list_keys",
        "get_key",
        "list_network_volumes",
        "get_network_volume",
        "list_registries",
        "get_registry",
        "list_budgets",
        "get_budget",
        "list_shared_limits",
        "get_shared_limit",
        "list_schedules",
        "get_schedule",
        "explain_scaling",
        "preview_schedule",
        "list_versions",
        "get_version",
        "list_gpu_types",
        "list_cpu_flavors",
        "list_data_centers",
        "get_billing",
        "get_limits",
        "get_nodes",
        "get_session",
        "get_overview",
        "list_failed_jobs",
        "get_endpoint_activity",
        "get_endpoint_series",
        "get_readiness",
      ]
    `);
  });

  it('fits the context of a model without --write, bytes', () => {
    const listed = TOOLS.filter(({ isReading }) => isReading).map((tool) => [
      tool.name,
      tool.description,
      describeArguments(tool),
    ]);
    expect(JSON.stringify(listed).length).toBeLessThan(32_768);
  });
});

describe('a call', () => {
  it('has its arguments in path, query and body', async () => {
    const given = { endpoint: 'my endpoint', tags: ['a', 'b&c'], limit: 2 };
    const { target } = await compose('list_jobs', given);
    expect(target).toBe('/v2/my%20endpoint/jobs?tags=a&tags=b%26c&limit=2');
    const run = await compose('run_job', { endpoint: 'demo', body: { input: { n: 1 } } });
    expect(run).toMatchObject({
      method: 'POST',
      target: '/v2/demo/run',
      body: '{"input":{"n":1}}',
    });
  });

  it.each(['..', '.', 'a/b', 'a\\b', '', '\ud800'])(
    'never leaves its path by an ID such as %j',
    (endpoint) => {
      expect(find('get_endpoint').schema.safeParse({ endpoint }).success).toBe(false);
    },
  );

  it('shows the end of a log that is longer than an answer', async () => {
    const text = `${'é'.repeat(100)}\n`.repeat(1_000);
    const given = { endpoint: 'demo', job: 'j', lines: 1_000 };
    const answer = await find('tail_log').run(given, async () => ({
      status: 200,
      text: `${text}the cause\n`,
      isCut: false,
    }));
    expect(answer.isCut).toBe(true);
    expect(answer.text.endsWith('é\nthe cause')).toBe(true);
    expect(answer.text).not.toContain('\ufffd');
    expect(Buffer.byteLength(answer.text)).toBeLessThanOrEqual(65_536);
  });

  it('explains a wait also if a part of the reasons is longer than an answer', async () => {
    const part = { status: 200, text: '{"pauses":[', isCut: true };
    expect(await find('explain_wait').run({ endpoint: 'demo' }, async () => part)).toEqual(part);
  });

  it('reads no more of an answer than its bound', async () => {
    let pulled = 0;
    async function* produce() {
      for (; pulled < 100; pulled++) yield new Uint8Array(10).fill(97);
    }
    expect(await readAnswer(200, produce(), 15)).toEqual({
      status: 200,
      text: 'a'.repeat(15),
      isCut: true,
    });
    expect(pulled).toBeLessThan(3);
  });
});
