// The form for a new key. It offers only scopes that the session's key has itself.
import { useState } from 'preact/hooks';
import type { IssuedKeyRecord, NewKey } from '../../../../src/client.ts';
import { SCOPES } from '../../../../src/wire/routes/route.ts';
import { ChoiceSelect, useChoices } from '../../parts/forms/choices.tsx';
import { Field } from '../../parts/forms/field.tsx';
import { FormActions } from '../../parts/forms/form-actions.tsx';
import { Problem } from '../../parts/problem.tsx';
import { SCOPE_TEXTS } from '../../parts/scopes.ts';
import { platform } from '../../platform/calls.ts';
import { asError } from '../../platform/polling.ts';
import { mayAnywhere } from '../../platform/session.ts';

interface KeyFormProps {
  onCreated: (key: IssuedKeyRecord) => void;
  onCancel: () => void;
}

const DAY_MS = 86_400_000;

export function KeyForm({ onCancel, onCreated }: KeyFormProps) {
  const [error, setError] = useState<Error>();
  const create = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    setError(undefined);
    try {
      onCreated(await platform.keys.create(readKey(new FormData(event.currentTarget), Date.now())));
    } catch (reason) {
      setError(asError(reason));
    }
  };
  return (
    <form class="settings" onSubmit={create}>
      <fieldset>
        <legend>New key</legend>
        <Field label="Name">
          {(ids) => <input {...ids} name="name" type="text" required maxLength={200} />}
        </Field>
        <EndpointField />
        <Field label="Expires after, days" help="Empty: same expiry as your key">
          {(ids) => <input {...ids} name="days" type="number" min={1} max={3_650} />}
        </Field>
        <fieldset class="scopes">
          <legend>Scopes</legend>
          {SCOPES.filter(mayAnywhere).map((scope) => (
            <label key={scope}>
              <input type="checkbox" name="scope" value={scope} /> <code>{scope}</code>{' '}
              <span class="muted">{SCOPE_TEXTS[scope]}</span>
            </label>
          ))}
        </fieldset>
      </fieldset>
      {error && <Problem error={error} />}
      <FormActions submit="Create" onBack={onCancel} />
    </form>
  );
}

/** The value is an ID or a name; empty: all endpoints. */
function EndpointField() {
  const choices = useChoices('endpoints');
  return (
    <Field label="Endpoint" help={choices ? undefined : 'ID or name; empty: all endpoints'}>
      {(ids) =>
        choices ? (
          <ChoiceSelect {...{ ...ids, choices }} name="endpoint" none="All endpoints" />
        ) : (
          <input {...ids} name="endpoint" type="text" />
        )
      }
    </Field>
  );
}

function readKey(form: FormData, now: number): NewKey {
  const text = (name: string) => String(form.get(name) ?? '').trim();
  const endpoint = text('endpoint');
  const scopes = form
    .getAll('scope')
    .map((scope) => (endpoint ? `${String(scope)}:${endpoint}` : String(scope)));
  const key: NewKey = { name: text('name'), scopes };
  const days = Number(text('days'));
  if (days > 0) key.expiresAt = new Date(now + days * DAY_MS).toISOString();
  return key;
}
