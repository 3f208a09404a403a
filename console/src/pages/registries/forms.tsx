// The forms of a registry's login: a new one, and its name, user and secret.
import type { RegistryRecord } from '../../../../src/client.ts';
import { Field } from '../../parts/forms/field.tsx';
import { FieldsForm, type FieldValues } from '../../parts/forms/fields-form.tsx';
import { platform } from '../../platform/calls.ts';

interface FormProps {
  onDone: () => void;
  onBack: () => void;
}

export function CreationForm(props: FormProps) {
  const create = ({ secret, text }: FieldValues) =>
    platform.registries.create({
      ...{ name: text('name'), server: text('server') },
      ...{ username: text('username'), secret: secret('secret') },
    });
  return (
    <FieldsForm label="New registry login" submit="Create" act={create} {...props}>
      <Name />
      <Field label="Server" help="registry.example.com:5000, or docker.io for Docker Hub">
        {(ids) => <input {...ids} name="server" type="text" required maxLength={255} />}
      </Field>
      <User />
      <Secret help="Password or token. The platform stores it encrypted and never shows it" />
    </FieldsForm>
  );
}

export function UpdateForm({ registry, ...props }: FormProps & { registry: RegistryRecord }) {
  const { id, name, username } = registry;
  const update = ({ secret, text }: FieldValues) => {
    const typed = secret('secret');
    return platform.registries.update(id, {
      ...{ name: text('name'), username: text('username') },
      ...(typed && { secret: typed }),
    });
  };
  return (
    <FieldsForm label={`Change the registry ${name}`} submit="Save" act={update} {...props}>
      <Name now={name} />
      <User now={username} />
      <Secret isOptional help="Empty: the secret stays" />
    </FieldsForm>
  );
}

function Name({ now = '' }: { now?: string }) {
  return (
    <Field label="Name">
      {(ids) => (
        <input {...ids} name="name" type="text" required maxLength={200} defaultValue={now} />
      )}
    </Field>
  );
}

// Browsers must neither fill in nor keep what belongs to another site.
function User({ now = '' }: { now?: string }) {
  return (
    <Field label="User">
      {(ids) => (
        <input
          {...ids}
          {...{ name: 'username', type: 'text', required: true, maxLength: 255 }}
          {...{ autocomplete: 'off', defaultValue: now }}
        />
      )}
    </Field>
  );
}

function Secret({ help, isOptional }: { help: string; isOptional?: boolean }) {
  return (
    <Field label="Secret" help={help}>
      {(ids) => (
        <input
          {...ids}
          {...{ name: 'secret', type: 'password', maxLength: 8_192 }}
          {...{ autocomplete: 'new-password', required: !isOptional }}
        />
      )}
    </Field>
  );
}
