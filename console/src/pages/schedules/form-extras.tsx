// What the form of a schedule has besides its fields: the input of its jobs, and the next ticks before it is saved.
import { useState } from 'preact/hooks';
import { SCHEDULE_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { Field } from '../../parts/forms/field.tsx';
import { readForm } from '../../parts/forms/resource-form.tsx';
import { readInput } from '../../parts/job/json-input.ts';
import { Problem } from '../../parts/problem.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { asError } from '../../platform/polling.ts';

const { at, cron, every, phase, timeZone, until } = SCHEDULE_FIELDS;
const TIMING = { cron, timeZone, every, phase, at, until };
const INPUT = 'schedule-input';

/** The members that the form adds. @throws Error if the input is no JSON object */
export function readExtras(): { input: object } {
  const field = document.querySelector<HTMLTextAreaElement>(`textarea[name=${INPUT}]`);
  const read = readInput(field?.value ?? '{}');
  if ('value' in read) return { input: read.value };
  throw new Error(`Input: ${read.problem}`);
}

export function FormExtras({ input }: { input: object }) {
  const [ticks, setTicks] = useState<readonly string[] | Error>();
  const preview = async (button: HTMLButtonElement) => {
    if (!button.form) return;
    try {
      const timing = readForm(TIMING, new FormData(button.form));
      setTicks((await platform.schedules.preview(timing)).nextTicks);
    } catch (reason) {
      setTicks(asError(reason));
    }
  };
  return (
    <>
      <Field label="Input" help="JSON object, the input of each job">
        {(ids) => (
          <textarea
            {...ids}
            name={INPUT}
            class="mono"
            rows={3}
            spellcheck={false}
            defaultValue={JSON.stringify(input)}
          />
        )}
      </Field>
      <div class="field">
        <button type="button" onClick={({ currentTarget }) => void preview(currentTarget)}>
          Show the next ticks
        </button>
        {ticks instanceof Error && <Problem error={ticks} />}
        {ticks && !(ticks instanceof Error) && (
          <ol aria-label="Next ticks">
            {ticks.map((tick) => (
              <li key={tick}>
                {tick} (<Time at={tick} />)
              </li>
            ))}
          </ol>
        )}
      </div>
    </>
  );
}
