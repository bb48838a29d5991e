// Blocks of code and tables can be scrolled by keyboard, and buttons of blocks have names of their own.
function nameBlocks() {
  document.querySelectorAll(".md-code__nav").forEach((buttons, number) => {
    buttons.setAttribute("aria-label", `Code ${number + 1}`);
  });
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((part) => {
    part.tabIndex = 0;
  });
}
new MutationObserver(nameBlocks).observe(document.body, { childList: true, subtree: true });
nameBlocks();
