document.title="ledgerd";
