"""Released SGLang cores: their managed environments, and the plug that runs inside one."""
