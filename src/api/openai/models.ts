// Picks one model from the answer that lists the models: vLLM's workers have no route for one model.
import { z } from 'zod';
import { answerError, type OpenAiAnswer } from './answers.ts';
import { describeError } from './errors.ts';

const list = z.object({ data: z.array(z.looseObject({ id: z.string() })) });

export function pickModel(answer: OpenAiAnswer, id: string): OpenAiAnswer {
  if (answer.status !== 200) return answer;
  const { data, success } = list.safeParse(parse(Buffer.concat(answer.pieces)));
  if (!success) {
    const detail = 'The handler gave no list of models for /v1/models.';
    return answerError(describeError(502, detail, 'output_invalid'));
  }
  const model = data.data.find((each) => each.id === id);
  if (model) return { ...answer, pieces: [Buffer.from(JSON.stringify(model))] };
  const detail = `The model ${JSON.stringify(id)} does not exist; GET /v1/models lists the models.`;
  return answerError(describeError(404, detail, 'model_not_found'));
}

/** More models than any server has, bytes. */
const MAX_LIST_BYTES = 1_048_576;

function parse(json: Buffer): unknown {
  if (json.length > MAX_LIST_BYTES) return undefined;
  try {
    return JSON.parse(json.toString());
  } catch {
    return undefined;
  }
}
