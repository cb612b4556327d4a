#include "millstream/codec/tar.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  return accept_or_refuse([&] {
    ByteReader reader(fuzzed(data, size), "fuzzed");
    while (const auto entry = parse_tar_header(reader)) {
      require(entry->size >= 0);
      const std::int64_t padded = (entry->size + kTarBlock - 1) / kTarBlock * kTarBlock;
      reader.take(padded, "an entry's data");
    }
  });
}
