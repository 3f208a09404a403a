// Puts the answer of a streamed completion together from its events: text, tool calls, usage.
import { NonRetryableError } from 'millrace';
import { z } from 'zod';
import { parseJson, readErrorMessage, type UpstreamConfig } from './openai-upstream.ts';

const usage = z.looseObject({});

const toolCallDelta = z.object({
  index: z.int().min(0).max(1_000).default(0),
  id: z.string().nullish(),
  type: z.string().nullish(),
  function: z.object({ name: z.string().nullish(), arguments: z.string().nullish() }).nullish(),
});

const completionEvent = z.object({
  model: z.string().nullish(),
  usage: usage.nullish(),
  choices: z
    .array(
      z.object({
        finish_reason: z.string().nullish(),
        /** Text of completions. */
        text: z.string().nullish(),
        /** Text of chat completions. */
        delta: z
          .object({ content: z.string().nullish(), tool_calls: z.array(toolCallDelta).nullish() })
          .nullish(),
      }),
    )
    .default([]),
});

const errorEvent = z.object({
  error: z.unknown().refine((error) => error !== undefined && error !== null),
});

interface ToolCall {
  id: string;
  type: string;
  function: { name: string; arguments: string };
}

interface AssembledAnswer {
  text: string;
  finish_reason: string | null;
  model?: string;
  /** As the server gave it. */
  usage?: Record<string, unknown>;
  tool_calls?: ToolCall[];
}

export class AnswerAssembler {
  readonly #config: UpstreamConfig;
  readonly #deltas: string[] = [];
  readonly #toolCalls: ToolCall[] = [];
  #finishReason: string | undefined;
  #model: string | undefined;
  #usage: Record<string, unknown> | undefined;

  constructor(config: UpstreamConfig) {
    this.#config = config;
  }

  /**
   * Returns the text that this event adds. @throws Error if the server reports a failure, or sends
   * data that cannot be read; NonRetryableError if it blames the request
   */
  accept(event: string, data: string): string {
    const json = parseJson(data);
    if (event === 'error' || errorEvent.safeParse(json).success) {
      throw explainEvent(json, this.#config);
    }
    const parsed = completionEvent.safeParse(json);
    if (!parsed.success) throw new Error('the server sent an event that is no completion');
    const { model, usage: counted, choices } = parsed.data;
    this.#model ??= model ?? undefined;
    this.#usage = counted ?? this.#usage;
    const [choice] = choices;
    if (choice === undefined) return '';
    this.#finishReason = choice.finish_reason ?? this.#finishReason;
    for (const call of choice.delta?.tool_calls ?? []) this.#addToolCall(call);
    const delta = choice.delta?.content ?? choice.text ?? '';
    this.#deltas.push(delta);
    return delta;
  }

  /** @throws Error if the stream broke off before the answer had ended. */
  finish(): AssembledAnswer {
    if (this.#finishReason === undefined) {
      throw new Error('the server ended the stream before the answer was complete');
    }
    return {
      text: this.#deltas.join(''),
      finish_reason: this.#finishReason,
      ...(this.#model !== undefined && { model: this.#model }),
      ...(this.#usage !== undefined && { usage: this.#usage }),
      ...(this.#toolCalls.length > 0 && { tool_calls: this.#toolCalls.filter(Boolean) }),
    };
  }

  #addToolCall({ index, id, type, function: part }: z.infer<typeof toolCallDelta>): void {
    let call = this.#toolCalls[index];
    if (call === undefined) {
      call = { id: '', type: 'function', function: { name: '', arguments: '' } };
      this.#toolCalls[index] = call;
    }
    call.id = id ?? call.id;
    call.type = type ?? call.type;
    call.function.name += part?.name ?? '';
    call.function.arguments += part?.arguments ?? '';
  }
}

/** Returns the counts of a usage record as metrics, or undefined without any. */
export function readUsageMetrics(
  counted: Record<string, unknown> | undefined,
): Record<string, number> | undefined {
  const metrics: Record<string, number> = {};
  for (const name of ['prompt_tokens', 'completion_tokens', 'total_tokens']) {
    const count = counted?.[name];
    if (typeof count === 'number' && Number.isFinite(count)) metrics[name] = count;
  }
  return Object.keys(metrics).length === 0 ? undefined : metrics;
}

function explainEvent(json: unknown, config: UpstreamConfig): Error {
  const reason = readErrorMessage(json, config) ?? 'it did not say why';
  const message = `the server failed while it was streaming: ${reason}`;
  const isOurFault = invalidRequest.safeParse(json).success;
  return isOurFault ? new NonRetryableError(message) : new Error(message);
}

const invalidRequest = z.object({ error: z.object({ type: z.literal('invalid_request_error') }) });
