#include "millstream/codec/packed.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  return accept_or_refuse([&] {
    const auto bytes = static_cast<std::int64_t>(size);
    ByteReader reader(fuzzed(data, size), "fuzzed");
    const PackedLayout layout = parse_packed(reader, bytes);
    require(layout.offset + layout.records * record_bytes(layout.schema) == bytes);
  });
}
