// `millrace mcp`: serves the platform's operations as tools of the Model Context Protocol on standard input and output.
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { createToolServer } from '../../api/mcp/tool-server.ts';
import { type CallOperation, readAnswer, TOOLS } from '../../api/mcp/tools.ts';
import { packageVersion } from '../../base/package-info.ts';
import { type ApiCaller, ApiError } from '../../client/api-caller.ts';
import { UnreachableError } from '../../client.ts';
import { PROBLEMS } from '../../wire/problem.ts';
import { defineCommand, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { flag } from '../options.ts';
import { clientOptions, connectCaller } from '../resources/client-options.ts';
import { listenForStop } from '../stop-signals.ts';
import { createRunHandlerTool } from './run-handler-tool.ts';

const options = {
  write: flag({ help: 'offer tools that change something, too; default: tools that only read' }),
  ...clientOptions,
};

export const mcpCommand = defineCommand({
  name: 'millrace mcp',
  description: [
    "Lets a coding agent operate a platform: serves the platform's operations as tools of the Model Context Protocol " +
      '(MCP) on standard input and output. Agents start the command themselves; docs/mcp.md has the settings of some. ' +
      'The scopes of the key say what the tools may do, and without --write they only read.',
  ],
  options,
  examples: ['millrace mcp', 'millrace mcp --write --profile staging'],
  exitCodes: { ok: 'the agent closed standard input, or a signal ended the command' },
  run,
});

async function run({ values }: ParsedArguments<typeof options>): Promise<number> {
  const caller = connectCaller(values);
  const ending = new AbortController();
  const writing = [createRunHandlerTool(process.cwd(), ending.signal)];
  const tools = values.write ? [...TOOLS, ...writing] : TOOLS.filter(({ isReading }) => isReading);
  const version = packageVersion();
  const call = callThrough(caller);
  const signals = listenForStop();
  const closed = new Promise<void>((resolve) => process.stdin.once('end', resolve));
  const served = serveStdio(() => createToolServer({ tools, call, version }));
  try {
    await Promise.race([closed, signals.first]);
  } finally {
    ending.abort();
    await served.close();
    signals.release();
  }
  return EXIT.ok;
}

function callThrough(caller: ApiCaller): CallOperation {
  return async ({ body, maxBytes, method, target }) => {
    try {
      const call = { method, path: target, ...(body !== undefined && { text: body }) };
      return await readAnswer(OK, await caller.open(call), maxBytes);
    } catch (error) {
      if (error instanceof ApiError) return answerProblem(error.problem);
      if (!(error instanceof UnreachableError)) throw error;
      const [status, title] = PROBLEMS.unavailable;
      return answerProblem({ status, title, detail: error.message });
    }
  };
}

const OK = 200;

function answerProblem(problem: { status: number; title: string; detail: string }) {
  return { status: problem.status, text: JSON.stringify(problem), isCut: false };
}
