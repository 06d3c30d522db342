// The page of `editjudge serve page`: what judging (judge.js) and labelling (label.js) share, and which of them it is.
// What the server tells is put in as text, never as HTML. Nothing else is asked of any host.

const charts = []; // base.js draws them again in another theme
const DIMENSIONS = {
  visual_consistency: "Which edit kept better what had to stay?",
  instruction_following: "Which edit did better what was asked?",
  visual_quality: "Which edit looks better?",
  overall: "Which edit is better?",
};

async function ask(path, options = {}) {
  // The server's JSON; what is wrong is an error with the server's words.
  let reply;
  try { reply = await fetch(path, { cache: "no-store", ...options }); } catch { throw new Error("The server does not answer: is `editjudge serve page` still running?"); }
  const said = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(said.error || `the server answers ${reply.status}`);
  return said;
}
async function trying(work) {
  // Whether it went well; else the reason stands on the page.
  $("problem").textContent = "";
  try { await work(); return true; } catch (error) { $("problem").textContent = error.message; return false; }
}

startTheme();
trying(async () => {
  const told = await ask("told");
  $("page").replaceChildren(...(told.judges ? judgePage(told) : labelPage(told)));
});
