package myriad_test

const fewFilesEnv = "MYRIAD_TEST_FEW_FILES"
