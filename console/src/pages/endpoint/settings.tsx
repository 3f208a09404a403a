// The settings of an endpoint: a form for those that the platform manages, a list for the others.
import { useState } from 'preact/hooks';
import type { EndpointChange, EndpointRecord } from '../../../../src/client.ts';
import type { Fields } from '../../../../src/wire/resources/field.ts';
import {
  ENDPOINT_FIELDS,
  JOB_FIELDS,
  SCALER_FIELDS,
  WORKER_FIELDS,
} from '../../../../src/wire/resources/fields.ts';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { FieldInputs, readForm } from '../../parts/forms/resource-form.tsx';
import { Problem } from '../../parts/problem.tsx';
import { platform } from '../../platform/calls.ts';
import { asError } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { go } from '../../routing/location.ts';
import type { PageProps } from '../../routing/routes.ts';
import { EndpointFrame, LoadProblem, useEndpoint } from './frame.tsx';

export function Page({ parameters: { endpoint: id = '' } }: PageProps) {
  const polled = useEndpoint(id);
  const endpoint = polled.data ?? undefined;
  return (
    <EndpointFrame id={id} tab="settings" endpoint={endpoint}>
      <LoadProblem polled={polled} />
      {endpoint && <Settings endpoint={endpoint} reload={polled.reload} />}
      {endpoint && endpoint.templateId !== null && may('endpoints:write') && (
        <Removal endpoint={endpoint} />
      )}
    </EndpointFrame>
  );
}

function Settings({ endpoint, reload }: { endpoint: EndpointRecord; reload: () => void }) {
  // The form keeps what it was opened with: an answer of the platform does not change what is being typed.
  const [opened, setOpened] = useState(endpoint);
  const [error, setError] = useState<Error>();
  const [note, setNote] = useState('');
  const isDeclared = endpoint.templateId === null && endpoint.source === 'TEMPLATE';
  const isFixed = isDeclared || !may('endpoints:write', endpoint.id);
  const save = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const change = readChange(new FormData(event.currentTarget), opened);
    setError(undefined);
    if (Object.keys(change).length === 0) return setNote('No changes.');
    try {
      setOpened(await platform.endpoints.update(endpoint.id, change));
      setNote('Saved.');
      reload();
    } catch (reason) {
      setNote('');
      setError(asError(reason));
    }
  };
  return (
    <form class="settings" onSubmit={save} onInput={() => setNote('')}>
      {isDeclared && (
        <p class="muted">
          The endpoint was declared when the platform started. Its settings are options of{' '}
          <code>millrace serve</code>, or of the handler in <code>millrace dev</code>.
        </p>
      )}
      {opened.templateId !== null && (
        <fieldset disabled={isFixed}>
          <legend>Workers</legend>
          <FieldInputs fields={WORKER_FIELDS} record={opened} />
          <FieldInputs fields={scalerFields(opened)} record={opened.scaler} />
        </fieldset>
      )}
      <fieldset disabled={isFixed}>
        <legend>Jobs</legend>
        <FieldInputs fields={JOB_FIELDS} record={opened} />
      </fieldset>
      {error && <Problem error={error} />}
      {!isFixed && (
        <div class="form-actions">
          <button type="submit" class="primary">
            Save
          </button>
          <span role="status">{note}</span>
        </div>
      )}
    </form>
  );
}

function Removal({ endpoint: { id, name } }: { endpoint: EndpointRecord }) {
  const remove = async () => {
    await platform.endpoints.delete(id);
    go('/');
  };
  return (
    <p>
      <Confirm
        label="Delete the endpoint"
        question={`Delete the endpoint ${name}?`}
        isDangerous
        act={remove}
      >
        <p>Its workers, jobs, versions and logs are deleted. This cannot be undone.</p>
      </Confirm>
    </p>
  );
}

function scalerFields({ scaler: { type } }: EndpointRecord): Fields {
  const { perWorker, seconds } = SCALER_FIELDS;
  return type === 'QUEUE_DELAY' ? { seconds } : { perWorker };
}

/** The members that differ from the record. */
function readChange(form: FormData, endpoint: EndpointRecord): EndpointChange {
  const scaler = { ...endpoint.scaler, ...readForm(scalerFields(endpoint), form) };
  const values = { ...readForm(ENDPOINT_FIELDS, form), scaler };
  const changed = Object.entries(values).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(Reflect.get(endpoint, name)),
  );
  return Object.fromEntries(changed);
}
