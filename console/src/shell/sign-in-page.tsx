// Asks for an API key once. The key goes to the platform, which answers with a session; the page keeps no key.
import { useId, useState } from 'preact/hooks';
import { Problem } from '../parts/problem.tsx';
import { asError } from '../platform/polling.ts';
import { signIn } from '../platform/sign-in.ts';
import { hrefOf } from '../routing/location.ts';

const NOTES = {
  new: undefined,
  ended: 'Your session has ended. Sign in again to continue.',
  signedOut: 'You are signed out.',
} as const;

export function SignInPage({ why }: { why: keyof typeof NOTES }) {
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const field = useId();
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const key = new FormData(event.currentTarget).get('key');
    setBusy(true);
    try {
      await signIn(typeof key === 'string' ? key.trim() : '');
    } catch (reason) {
      setError(asError(reason));
      setBusy(false);
    }
  };
  const note = NOTES[why];
  return (
    <main class="lone sign-in">
      <h1>
        <img src={hrefOf('/icon.svg')} alt="" width="28" height="28" /> Millrace
      </h1>
      {note && !error && <p role="status">{note}</p>}
      <form onSubmit={submit}>
        {/* For password managers. */}
        <input
          type="text"
          name="username"
          autocomplete="username"
          value="API key"
          hidden
          readOnly
        />
        <label for={field}>API key</label>
        <input
          id={field}
          name="key"
          type="password"
          required
          autocomplete="current-password"
          spellcheck={false}
          placeholder="mr_…"
        />
        <button type="submit" class="primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
      {error && <Problem error={error} />}
      <p class="muted">
        Use the admin key from your key file, or create a limited one:{' '}
        <code>millrace keys create --name console --scope jobs:read</code>
      </p>
    </main>
  );
}
