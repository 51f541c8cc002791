ulpscope judge missing.safetensors other.safetensors
