// A line of a batch in Millrace's own form: `{ "id": "…", "input": { … } }`. Its result has the record of the job.
import { z } from 'zod';
import { type BatchForm, type BatchForms, writeOwnResult } from '../queue/batches/batch-form.ts';
import { BATCH_LIMITS } from '../wire/job/batch.ts';
import { readWithInput } from './body/body.ts';
import { DEFAULT_BOUNDS } from './limits/bounds.ts';

export const OWN_FORM = 'own';

const { maxEnvelopeBytes, maxJsonDepth } = DEFAULT_BOUNDS;

const batchLine = z.strictObject({
  id: z.string().min(1).max(BATCH_LIMITS.customIdCharacters),
  input: z.looseObject({}),
});

const ownForm: BatchForm = {
  attachment: null,
  names: { customId: 'id', target: '' },
  async readLine(line, owner) {
    const { input, request } = await readWithInput(line, batchLine, {
      ...{ owner, maxEnvelopeBytes, maxJsonDepth },
    });
    return { customId: request.id, target: '', input };
  },
  writeResult: writeOwnResult,
};

export const OWN_FORMS: BatchForms = { [OWN_FORM]: ownForm };
