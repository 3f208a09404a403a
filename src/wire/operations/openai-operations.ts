// The OpenAI API of an endpoint. The bodies are the handler's: the platform passes them on.
import { z } from 'zod';
import { LIMITS } from '../job/job.ts';
import { OPENAI_ROUTES } from '../routes/routes.ts';
import { describeOperations, JSON_TYPE } from './operation.ts';

const openAiError = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }),
});

const errors = {
  schema: openAiError,
  example: {
    error: {
      message: 'Invalid, unknown or expired API key.',
      ...{ type: 'authentication_error', param: null, code: 'invalid_api_key' },
    },
  },
};

const model = z.looseObject({ id: z.string(), object: z.string() });
const MODEL = { id: 'small-model', object: 'model' };

const answerModel = <S extends z.ZodType>(schema: S, example: z.output<S>) => ({
  200: { description: 'Answer of the handler.', content: { [JSON_TYPE]: { schema, example } } },
});

export const OPENAI_OPERATIONS = describeOperations('openai', OPENAI_ROUTES, {
  postOpenAi: {
    summary: 'Send a request of the OpenAI API to the handler',
    description:
      '`path` is everything behind `/v1/`, such as `chat/completions`. The request becomes a job with the input ' +
      '`{ "openai_route": "/v1/<path>", "openai_input": <body> }`; its output is the answer. With `"stream": true` ' +
      'each chunk of the job is an event. The job is cancelled if the client disconnects, and after 10 minutes ' +
      `without an answer or a first chunk. At most ${LIMITS.runBodyBytes} bytes.`,
    body: {
      schema: z.looseObject({ stream: z.boolean().exactOptional() }),
      example: {
        model: MODEL.id,
        messages: [{ role: 'user', content: 'Hello' }],
      },
      maxBytes: LIMITS.runBodyBytes,
    },
    answers: {
      200: {
        description: 'Answer of the handler.',
        content: {
          [JSON_TYPE]: {
            schema: z.looseObject({ object: z.string() }),
            example: { object: 'chat.completion', choices: [] },
          },
          'text/event-stream': {
            schema: z.string(),
            example: 'data: {"choices":[]}\n\ndata: [DONE]\n\n',
          },
        },
      },
    },
    errors,
  },
  getOpenAiModels: {
    summary: 'Read the models from the handler',
    description: 'A job with the input `{ "openai_route": "/v1/models", "openai_input": {} }`.',
    answers: answerModel(z.object({ object: z.string(), data: z.array(model) }), {
      object: 'list',
      data: [MODEL],
    }),
    errors,
  },
  getOpenAiModel: {
    summary: 'Read one model from the handler',
    description: 'The model of this ID in the answer for `/v1/models`.',
    answers: answerModel(model, MODEL),
    errors,
  },
});
