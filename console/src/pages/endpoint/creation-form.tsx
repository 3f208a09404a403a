// The form for a new endpoint. Its other settings have defaults, which its page can change.
import { WORKER_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { LOADING, useChoices } from '../../parts/forms/choices.tsx';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { platform } from '../../platform/calls.ts';
import { go, hrefOf } from '../../routing/location.ts';
import { pathOf } from './frame.tsx';

interface CreationFormProps {
  onDone: () => void;
  onBack: () => void;
}

const target = {
  ...platform.endpoints,
  create: async (values: Parameters<typeof platform.endpoints.create>[0]) => {
    const { id } = await platform.endpoints.create(values);
    go(pathOf(id));
  },
};

export function CreationForm(props: CreationFormProps) {
  const templates = useChoices('templates');
  return (
    <ResourceForm noun="endpoint" fields={WORKER_FIELDS} opened="new" target={target} {...props}>
      {templates?.length === 0 && templates !== LOADING && (
        <p>
          An endpoint needs a template, which has the image or the handler of its workers.{' '}
          <a href={hrefOf('/templates')}>Create a template</a>, or deploy a handler with{' '}
          <code>millrace deploy handler.ts</code>: it creates both.
        </p>
      )}
    </ResourceForm>
  );
}
